"""The ledger: lines, usage by hour; batches, chunks and deltas carry a line. What was queued before has none.

The new columns have constant defaults, so no row is rewritten. What batches counted before is not in the usage, so it is
subtracted in `removed_counts`.

Revision ID: 0024
Revises: 0023
"""

from alembic import op

from app.db.migrate import run_script

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE line (
  line_id INTEGER GENERATED ALWAYS AS IDENTITY,
  tenant_id INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  task TEXT NOT NULL,
  critical BOOLEAN NOT NULL,
  variant TEXT NOT NULL,
  family TEXT NOT NULL,
  model TEXT NOT NULL,
  kind TEXT NOT NULL,
  price_in BIGINT,
  price_cached BIGINT,
  price_out BIGINT,
  currency TEXT,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT line_pkey PRIMARY KEY (line_id),
  CONSTRAINT line_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
  CONSTRAINT line_parts UNIQUE NULLS NOT DISTINCT
    (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, price_in, price_cached, price_out, currency)
);
COMMENT ON COLUMN line.key_id IS 'empty: not known';
COMMENT ON COLUMN line.model IS 'catalogue name of the model that answers';
COMMENT ON COLUMN line.kind IS 'sync, or the kind of a batch';
COMMENT ON COLUMN line.price_in IS '10^-12 of the currency per prompt token; null: the model has no price';
COMMENT ON COLUMN line.price_cached IS 'the same, per prompt token from the prefix cache';
COMMENT ON COLUMN line.price_out IS 'the same, per token of the answer';
CREATE TABLE usage (
  hour TIMESTAMP WITH TIME ZONE NOT NULL,
  line_id INTEGER NOT NULL,
  requests BIGINT DEFAULT 0 NOT NULL,
  ok BIGINT DEFAULT 0 NOT NULL,
  prompt BIGINT DEFAULT 0 NOT NULL,
  cached BIGINT DEFAULT 0 NOT NULL,
  output BIGINT DEFAULT 0 NOT NULL,
  repeats BIGINT DEFAULT 0 NOT NULL,
  retried BIGINT DEFAULT 0 NOT NULL,
  retried_ok BIGINT DEFAULT 0 NOT NULL,
  yields BIGINT DEFAULT 0 NOT NULL,
  CONSTRAINT usage_pkey PRIMARY KEY (hour, line_id),
  CONSTRAINT usage_line_id_fkey FOREIGN KEY (line_id) REFERENCES line (line_id)
);
COMMENT ON COLUMN usage.hour IS 'the hour (UTC) in which the requests ended';
COMMENT ON COLUMN usage.prompt IS 'tokens, cached ones included';
COMMENT ON COLUMN usage.cached IS 'of these, from the prefix cache';
COMMENT ON COLUMN usage.repeats IS 'of a batch''s second or later run';
COMMENT ON COLUMN usage.retried IS 'that took more than one attempt';
CREATE TABLE usage_writer (
  writer TEXT NOT NULL,
  number BIGINT NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT usage_writer_pkey PRIMARY KEY (writer)
);
COMMENT ON COLUMN usage_writer.writer IS 'a process that books synchronous usage';
COMMENT ON COLUMN usage_writer.number IS 'of the group of sums that it booked last';
CREATE TABLE removed_counts (
  tenant_id INTEGER NOT NULL,
  ok BIGINT DEFAULT 0 NOT NULL,
  failed BIGINT DEFAULT 0 NOT NULL,
  prompt_tokens BIGINT DEFAULT 0 NOT NULL,
  cached_tokens BIGINT DEFAULT 0 NOT NULL,
  completion_tokens BIGINT DEFAULT 0 NOT NULL,
  CONSTRAINT removed_counts_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT removed_counts_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
INSERT INTO removed_counts
SELECT tenant_id, -sum(ok), -sum(failed), -sum(prompt_tokens), -sum(cached_tokens), -sum(completion_tokens)
  FROM batch GROUP BY tenant_id;
ALTER TABLE batch ADD COLUMN line_id INTEGER;
ALTER TABLE chunk ADD COLUMN line_id INTEGER;
ALTER TABLE batch_delta ADD COLUMN line_id INTEGER, ADD COLUMN at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  ADD COLUMN repeats INTEGER DEFAULT 0 NOT NULL, ADD COLUMN retried INTEGER DEFAULT 0 NOT NULL,
  ADD COLUMN retried_ok INTEGER DEFAULT 0 NOT NULL, ADD COLUMN yields INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN batch.line_id IS 'line of its items; null: queued before there were lines';
COMMENT ON COLUMN chunk.line_id IS 'line of its items; null: that of the batch';
COMMENT ON COLUMN batch_delta.line_id IS 'line of the results; null: that of the batch';
COMMENT ON COLUMN batch_delta.at IS 'when the chunk ended';
"""

DOWN = """
ALTER TABLE batch_delta DROP COLUMN line_id, DROP COLUMN at, DROP COLUMN repeats, DROP COLUMN retried, DROP COLUMN retried_ok,
  DROP COLUMN yields;
ALTER TABLE chunk DROP COLUMN line_id;
ALTER TABLE batch DROP COLUMN line_id;
DROP TABLE removed_counts;
DROP TABLE usage;
DROP TABLE usage_writer;
DROP TABLE line;
"""


def upgrade() -> None:
    """Four tables, and columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Usage is lost; batches keep their counts."""
    run_script(op.get_bind(), DOWN)
