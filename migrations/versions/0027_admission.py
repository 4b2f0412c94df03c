"""Admission: labels that a key pins, versions of the policy, samples of requests, and quotas of accounts.

The new columns have constant defaults, so no row is rewritten. Batches that were queued before have 0 stored bytes.

Revision ID: 0027
Revises: 0026
"""

from alembic import op

from app.db.migrate import run_script

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE policy (
  policy_id INTEGER GENERATED ALWAYS AS IDENTITY,
  hash TEXT NOT NULL,
  text TEXT NOT NULL,
  by TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT policy_pkey PRIMARY KEY (policy_id)
);
COMMENT ON COLUMN policy.policy_id IS 'the newest is in force';
COMMENT ON COLUMN policy.hash IS 'SHA-256 of the text, hexadecimal';
COMMENT ON COLUMN policy.by IS 'who applied it';
CREATE TABLE request_sample (
  sample_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  tenant_id INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  task TEXT NOT NULL,
  critical BOOLEAN NOT NULL,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  deadline FLOAT,
  requests INTEGER NOT NULL,
  est_tokens BIGINT NOT NULL,
  answer_tokens BIGINT NOT NULL,
  CONSTRAINT request_sample_pkey PRIMARY KEY (sample_id),
  CONSTRAINT request_sample_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
CREATE INDEX request_sample_at ON request_sample (at);
COMMENT ON COLUMN request_sample.model IS 'the model that was asked for';
COMMENT ON COLUMN request_sample.deadline IS 'seconds of its completion window; null: it had none';
COMMENT ON COLUMN request_sample.requests IS 'how many requests this sample stands for';
COMMENT ON COLUMN request_sample.est_tokens IS 'estimate, of one request: prompt and answer';
COMMENT ON COLUMN request_sample.answer_tokens IS 'of these, the answer';
CREATE TABLE quota (
  tenant_id INTEGER NOT NULL,
  open_batches BIGINT,
  open_items BIGINT,
  queued_tokens BIGINT,
  stored_bytes BIGINT,
  CONSTRAINT quota_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT quota_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN quota.open_batches IS 'batches that are not final; null: no limit';
COMMENT ON COLUMN quota.open_items IS 'items without a result of these batches; null: no limit';
COMMENT ON COLUMN quota.queued_tokens IS 'estimated tokens of these items; null: no limit';
COMMENT ON COLUMN quota.stored_bytes IS 'uploaded files, and the requests of all its batches; null: no limit';
ALTER TABLE tenant ADD COLUMN has_quota BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN tenant.has_quota IS 'whether it has a row in quota, so that the submits of others need not look';
ALTER TABLE api_key ADD COLUMN pins TEXT[];
COMMENT ON COLUMN api_key.pins IS 'labels that every request of the key gets, as name=value';
ALTER TABLE batch ADD COLUMN bytes BIGINT DEFAULT 0 NOT NULL, ADD COLUMN policy JSONB;
COMMENT ON COLUMN batch.policy IS 'what rules of the policy decided at its submit; null: nothing';
"""

DOWN = """
ALTER TABLE batch DROP COLUMN bytes, DROP COLUMN policy;
ALTER TABLE api_key DROP COLUMN pins;
ALTER TABLE tenant DROP COLUMN has_quota;
DROP TABLE quota;
DROP TABLE request_sample;
DROP TABLE policy;
"""


def upgrade() -> None:
    """Three tables, and columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Policies and quotas are lost; batches stay."""
    run_script(op.get_bind(), DOWN)
