"""The audit log of the whole installation: rows, seals and signed checkpoints. It takes the place of the console's.

What the console has recorded is copied, and the next steward seals it. A console of the version before cannot record anything
until it is restarted, so it refuses to act.

Revision ID: 0034
Revises: 0033
"""

from alembic import op

from app.db.migrate import run_script

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

_COLUMNS = (
    "account",
    "act",
    "after",
    "at",
    "before",
    "correlation",
    "outcome",
    "reason",
    "role",
    "session",
    "target",
    "who",
)
_VALUES = {
    "act": "to_json(action)::text",
    "after": "detail::text",
    "at": """to_json(to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))::text""",
    "before": "null",
    "correlation": "'[]'",
    "session": "session_id::text",
    "who": "to_json(subject)::text",
}
_BODY = (
    "'{' || "
    + " || ',' || ".join(
        f"""'"{name}":' || coalesce({_VALUES.get(name, f"to_json({name})::text")}, 'null')""" for name in _COLUMNS
    )
    + " || '}'"
)

_GUARDED = ("audit", "audit_seal", "audit_checkpoint")

_TABLES = """
CREATE TABLE audit (
  audit_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  account TEXT,
  act TEXT NOT NULL,
  target TEXT NOT NULL,
  body TEXT NOT NULL,
  CONSTRAINT audit_pkey PRIMARY KEY (audit_id)
);
CREATE INDEX audit_target ON audit (target, audit_id);
CREATE INDEX audit_account ON audit (account, audit_id);
COMMENT ON COLUMN audit.account IS 'whose object it was; null: the installation''s';
COMMENT ON COLUMN audit.act IS 'for example policy.apply, key.revoke, item.reveal';
COMMENT ON COLUMN audit.target IS 'id of the object';
COMMENT ON COLUMN audit.body IS 'the whole record as canonical JSON, which the seal covers';
CREATE TABLE audit_pending (
  audit_id BIGINT NOT NULL,
  CONSTRAINT audit_pending_pkey PRIMARY KEY (audit_id)
);
COMMENT ON COLUMN audit_pending.audit_id IS 'a row that is not sealed yet';
CREATE TABLE audit_seal (
  account TEXT NOT NULL,
  seq BIGINT NOT NULL,
  audit_id BIGINT NOT NULL,
  hash BYTEA NOT NULL,
  CONSTRAINT audit_seal_pkey PRIMARY KEY (account, seq),
  CONSTRAINT audit_seal_audit_id_key UNIQUE (audit_id)
);
COMMENT ON COLUMN audit_seal.account IS 'the chain; empty: the installation''s';
COMMENT ON COLUMN audit_seal.seq IS 'place in the chain, from 1';
COMMENT ON COLUMN audit_seal.hash IS 'SHA-256 of the hash before, seq (8 bytes, big-endian) and body';
CREATE TABLE audit_checkpoint (
  account TEXT NOT NULL,
  seq BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  cut BOOLEAN NOT NULL,
  body TEXT NOT NULL,
  signature BYTEA NOT NULL,
  CONSTRAINT audit_checkpoint_pkey PRIMARY KEY (account, seq, at)
);
COMMENT ON COLUMN audit_checkpoint.seq IS 'the newest sealed row that it covers';
COMMENT ON COLUMN audit_checkpoint.cut IS 'whether the rows up to seq may be deleted';
COMMENT ON COLUMN audit_checkpoint.body IS 'canonical JSON, also in the object store below audit/';
COMMENT ON COLUMN audit_checkpoint.signature IS 'Ed25519, of the body';
LOCK TABLE console_audit IN SHARE ROW EXCLUSIVE MODE;
"""
_COPY = f"""
WITH copied AS (
  INSERT INTO audit (at, account, act, target, body)
    SELECT at, account, action, target, {_BODY} FROM console_audit ORDER BY audit_id RETURNING audit_id)
INSERT INTO audit_pending SELECT audit_id FROM copied;
"""  # noqa: S608
_GUARDS = """
DROP TABLE console_audit;
DROP FUNCTION console_audit_is_final();
CREATE FUNCTION audit_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% is only added to', TG_TABLE_NAME; END $$;
CREATE FUNCTION audit_cut() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE covered BOOLEAN;
BEGIN
  CASE TG_TABLE_NAME
  WHEN 'audit' THEN covered := EXISTS (SELECT FROM audit_seal s JOIN audit_checkpoint c USING (account)
    WHERE s.audit_id = OLD.audit_id AND c.cut AND c.seq >= s.seq);
  WHEN 'audit_seal' THEN covered := EXISTS (SELECT FROM audit_checkpoint c
    WHERE c.account = OLD.account AND c.cut AND c.seq >= OLD.seq);
  ELSE covered := EXISTS (SELECT FROM audit_checkpoint c WHERE c.account = OLD.account AND c.cut AND c.seq > OLD.seq);
  END CASE;
  IF covered THEN RETURN OLD; END IF;
  RAISE EXCEPTION '% is only added to', TG_TABLE_NAME;
END $$;
"""
_TRIGGERS = "".join(
    f"""
CREATE TRIGGER {table}_is_final BEFORE UPDATE OR TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_final();
CREATE TRIGGER {table}_cut BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION audit_cut();
REVOKE UPDATE, TRUNCATE ON {table} FROM PUBLIC, CURRENT_USER;
"""
    for table in _GUARDED
)
SCRIPT = _TABLES + _COPY + _GUARDS + _TRIGGERS

_OF = "body::json->>"

DOWN = f"""
CREATE TABLE console_audit (
  audit_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
  subject TEXT NOT NULL,
  role TEXT NOT NULL,
  session_id BIGINT,
  account TEXT,
  action TEXT NOT NULL,
  target TEXT NOT NULL,
  outcome TEXT NOT NULL,
  reason TEXT,
  detail JSONB,
  CONSTRAINT console_audit_pkey PRIMARY KEY (audit_id)
);
CREATE INDEX console_audit_target ON console_audit (target, audit_id);
INSERT INTO console_audit (at, subject, role, session_id, account, action, target, outcome, reason, detail)
  SELECT at, {_OF}'who', {_OF}'role', ({_OF}'session')::bigint, account, act, target, {_OF}'outcome', {_OF}'reason',
    nullif({_OF}'after', 'null')::jsonb FROM audit ORDER BY audit_id;
CREATE FUNCTION console_audit_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'console_audit is only added to'; END $$;
CREATE TRIGGER console_audit_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON console_audit
  FOR EACH STATEMENT EXECUTE FUNCTION console_audit_is_final();
DROP TABLE audit, audit_pending, audit_seal, audit_checkpoint;
DROP FUNCTION audit_is_final();
DROP FUNCTION audit_cut();
"""  # noqa: S608


def upgrade() -> None:
    """Four tables with their triggers, in place of one."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """The rows go back to the console's table. Seals, checkpoints, and what rows had beyond it are lost."""
    run_script(op.get_bind(), DOWN)
