"""The console: one-time links, sessions, and the audit log, which is only ever added to.

Revision ID: 0033
Revises: 0032
"""

from alembic import op

from app.db.migrate import run_script

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_GRANT = """
  subject TEXT NOT NULL,
  role TEXT NOT NULL,
  tenant_id INTEGER"""
_CHECKS = """
  CONSTRAINT {0}_role CHECK (role in ('viewer', 'admin', 'operator', 'auditor')),
  CONSTRAINT {0}_scope CHECK ((tenant_id is not null) = (role in ('viewer', 'admin'))),
  CONSTRAINT {0}_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE"""

SCRIPT = f"""
CREATE TABLE console_login (
  hash BYTEA NOT NULL,{_GRANT},
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT console_login_pkey PRIMARY KEY (hash),{_CHECKS.format("console_login")}
);
COMMENT ON COLUMN console_login.hash IS 'SHA-256 of the token of a one-time link';
CREATE TABLE console_session (
  session_id BIGINT GENERATED ALWAYS AS IDENTITY,
  hash BYTEA NOT NULL,{_GRANT},
  signed_in_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  revoked_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT console_session_pkey PRIMARY KEY (session_id),
  CONSTRAINT console_session_hash_key UNIQUE (hash),{_CHECKS.format("console_session")}
);
COMMENT ON COLUMN console_session.hash IS 'SHA-256 of the cookie''s token';
COMMENT ON COLUMN console_session.seen_at IS 'coarse: at most once a minute';
COMMENT ON COLUMN console_session.expires_at IS 'its end, however much it is used';
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
COMMENT ON COLUMN console_audit.session_id IS 'null: on the command line';
COMMENT ON COLUMN console_audit.account IS 'whose object it was; null: the installation''s';
COMMENT ON COLUMN console_audit.action IS 'for example batch.cancel, item.reveal, session.start';
COMMENT ON COLUMN console_audit.target IS 'id of the object';
COMMENT ON COLUMN console_audit.outcome IS 'done, or why it was refused';
COMMENT ON COLUMN console_audit.reason IS 'what the person gave as the reason';
CREATE FUNCTION console_audit_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'console_audit is only added to'; END $$;
CREATE TRIGGER console_audit_is_final BEFORE UPDATE OR DELETE OR TRUNCATE ON console_audit
  FOR EACH STATEMENT EXECUTE FUNCTION console_audit_is_final();
""" + "".join(
    f"COMMENT ON COLUMN {table}.subject IS 'who signs in';\n"
    f"COMMENT ON COLUMN {table}.tenant_id IS 'the account of a viewer or an admin; null: the installation';\n"
    for table in ("console_login", "console_session")
)

DOWN = """
DROP TABLE console_audit;
DROP FUNCTION console_audit_is_final();
DROP TABLE console_session;
DROP TABLE console_login;
"""


def upgrade() -> None:
    """Three tables and a trigger."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Everybody is signed out, and the audit log is lost."""
    run_script(op.get_bind(), DOWN)
