"""Identities: roles, limits and rotation of API keys; tokens of operators; which master key a secret depends on.

Revision ID: 0035
Revises: 0034
"""

from alembic import op

from app.db.migrate import run_script

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

# The keys that there are become admins of their accounts: they may do what they could. No column rewrites the table.
SCRIPT = """
SET LOCAL lock_timeout = '5s';
ALTER TABLE api_key
  ADD COLUMN role TEXT DEFAULT 'admin' NOT NULL CONSTRAINT api_key_role CHECK (role in ('viewer', 'submitter', 'admin')),
  ADD COLUMN models TEXT[],
  ADD COLUMN endpoints TEXT[],
  ADD COLUMN networks CIDR[],
  ADD COLUMN restore BOOLEAN DEFAULT false NOT NULL,
  ADD COLUMN created_by TEXT,
  ADD COLUMN master_key TEXT,
  ADD COLUMN rotation INTEGER DEFAULT 0 NOT NULL,
  ADD COLUMN old_secret_hash BYTEA,
  ADD COLUMN old_until TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN api_key.role IS 'what it may do in its account';
COMMENT ON COLUMN api_key.models IS 'the only models that its requests may name; null: any';
COMMENT ON COLUMN api_key.endpoints IS 'the only routes of engines that its requests may use; null: any';
COMMENT ON COLUMN api_key.networks IS 'the only networks that it may be used from; null: any';
COMMENT ON COLUMN api_key.restore IS 'whether it reads what redaction has replaced';
COMMENT ON COLUMN api_key.created_by IS 'who made it; null: not known';
COMMENT ON COLUMN api_key.master_key IS 'id of the master key whose pepper secret_hash has; null: not known';
COMMENT ON COLUMN api_key.rotation IS 'how often its secret was changed';
COMMENT ON COLUMN api_key.old_secret_hash IS 'of the secret before the last rotation';
COMMENT ON COLUMN api_key.old_until IS 'until when the old secret works';
CREATE TABLE operator_token (
  token_id TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  secret_hash BYTEA NOT NULL,
  master_key TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  last_used_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT operator_token_pkey PRIMARY KEY (token_id),
  CONSTRAINT operator_token_role CHECK (role in ('operator', 'auditor')),
  CONSTRAINT operator_token_lifetime CHECK (expires_at <= created_at + interval '90 days')
);
COMMENT ON COLUMN operator_token.name IS 'the person or the program that has it, as the audit log shows it';
COMMENT ON COLUMN operator_token.secret_hash IS 'HMAC-SHA256 under the pepper';
COMMENT ON COLUMN operator_token.master_key IS 'id of the master key whose pepper secret_hash has';
COMMENT ON COLUMN operator_token.last_used_at IS 'coarse: written at most once a minute';
"""

DOWN = """
DROP TABLE operator_token;
ALTER TABLE api_key
  DROP COLUMN old_until, DROP COLUMN old_secret_hash, DROP COLUMN rotation, DROP COLUMN master_key, DROP COLUMN created_by,
  DROP COLUMN restore, DROP COLUMN networks, DROP COLUMN endpoints, DROP COLUMN models, DROP COLUMN role;
"""


def upgrade() -> None:
    """Columns of keys, and a table."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Every key becomes unlimited again, so those that were limited should be revoked before; operators' tokens are lost."""
    run_script(op.get_bind(), DOWN)
