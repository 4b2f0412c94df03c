"""History: changes of the installation, what engines did, latencies by minute, what batches waited for and of what items failed.

The new columns are null in old rows, so no row is rewritten. The indexes of failed items read all stored results, which
takes some seconds for each ten million; meanwhile results are stored as ever.

Revision ID: 0032
Revises: 0031
"""

from alembic import op

from app.db.migrate import run_script
from migrations.indexes import Index, build

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

COLUMNS = """
ALTER TABLE batch ADD COLUMN IF NOT EXISTS name TEXT, ADD COLUMN IF NOT EXISTS est_tokens BIGINT;
ALTER TABLE item_result ADD COLUMN IF NOT EXISTS error TEXT, ADD COLUMN IF NOT EXISTS engine_id INTEGER,
  ADD COLUMN IF NOT EXISTS queued_ms INTEGER, ADD COLUMN IF NOT EXISTS first_token_ms INTEGER,
  ADD COLUMN IF NOT EXISTS ran_ms INTEGER;
"""

INDEXES = (
    Index("batch_listed_all", "batch", "(created_at, request_id) WHERE kind = 'batch'"),
    Index("batch_name", "batch", "(tenant_id, name text_pattern_ops) WHERE name is not null"),
    Index("item_result_error", "item_result", "(batch_id, error, seq) WHERE ok = 0"),
    Index("item_result_failed", "item_result", "(batch_id, seq) WHERE ok = 0"),
)

SCRIPT = """
CREATE TABLE change (
  change_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  tenant_id INTEGER,
  data JSONB NOT NULL,
  CONSTRAINT change_pkey PRIMARY KEY (change_id),
  CONSTRAINT change_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
CREATE INDEX change_at ON change (at, change_id);
CREATE INDEX change_subject ON change (subject, at);
CREATE INDEX change_tenant ON change (tenant_id, at) WHERE tenant_id is not null;
COMMENT ON COLUMN change.kind IS 'what happened (app/changes/kinds.py)';
COMMENT ON COLUMN change.subject IS 'to whom: the name of an engine, a part, an endpoint or a budget';
COMMENT ON COLUMN change.tenant_id IS 'the account that it concerns; null: the installation';
COMMENT ON COLUMN change.data IS 'what is known about it, ids of batch, delivery and trace included';
CREATE TABLE engine_sample (
  engine_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  seconds REAL NOT NULL,
  reason TEXT NOT NULL,
  closed_seconds REAL NOT NULL,
  allowance REAL NOT NULL,
  batch REAL NOT NULL,
  sync REAL NOT NULL,
  sync_waiting REAL NOT NULL,
  frozen REAL NOT NULL,
  kv_usage REAL,
  step_ms REAL,
  predicted_ms REAL,
  allowed_ms REAL,
  batch_tokens BIGINT NOT NULL,
  sync_tokens BIGINT NOT NULL,
  yields INTEGER NOT NULL,
  evictions INTEGER NOT NULL,
  CONSTRAINT engine_sample_pkey PRIMARY KEY (engine_id, at)
);
CREATE INDEX engine_sample_at ON engine_sample USING brin (at);
COMMENT ON COLUMN engine_sample.at IS 'the end of the time';
COMMENT ON COLUMN engine_sample.seconds IS 'how long that was';
COMMENT ON COLUMN engine_sample.reason IS 'the reason code that held longest';
COMMENT ON COLUMN engine_sample.closed_seconds IS 'of these, without an allowance';
COMMENT ON COLUMN engine_sample.kv_usage IS '0 to 1; null: not known';
COMMENT ON COLUMN engine_sample.step_ms IS 'an engine step, as measured; null: none was';
COMMENT ON COLUMN engine_sample.predicted_ms IS 'the same, as predicted';
COMMENT ON COLUMN engine_sample.allowed_ms IS 'how long a step was allowed to take; null: L1 rules';
COMMENT ON COLUMN engine_sample.batch_tokens IS 'computed for batch requests: the harvest';
COMMENT ON COLUMN engine_sample.sync_tokens IS 'computed for all other requests';
CREATE TABLE engine_minute (
  engine_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  seconds REAL NOT NULL,
  reason TEXT NOT NULL,
  closed_seconds REAL NOT NULL,
  allowance REAL NOT NULL,
  batch REAL NOT NULL,
  sync REAL NOT NULL,
  sync_waiting REAL NOT NULL,
  frozen REAL NOT NULL,
  kv_usage REAL,
  step_ms REAL,
  predicted_ms REAL,
  allowed_ms REAL,
  batch_tokens BIGINT NOT NULL,
  sync_tokens BIGINT NOT NULL,
  yields INTEGER NOT NULL,
  evictions INTEGER NOT NULL,
  CONSTRAINT engine_minute_pkey PRIMARY KEY (engine_id, at)
);
CREATE INDEX engine_minute_at ON engine_minute USING brin (at);
COMMENT ON COLUMN engine_minute.at IS 'the end of the time';
COMMENT ON COLUMN engine_minute.seconds IS 'how long that was';
COMMENT ON COLUMN engine_minute.reason IS 'the reason code that held longest';
COMMENT ON COLUMN engine_minute.closed_seconds IS 'of these, without an allowance';
COMMENT ON COLUMN engine_minute.kv_usage IS '0 to 1; null: not known';
COMMENT ON COLUMN engine_minute.step_ms IS 'an engine step, as measured; null: none was';
COMMENT ON COLUMN engine_minute.predicted_ms IS 'the same, as predicted';
COMMENT ON COLUMN engine_minute.allowed_ms IS 'how long a step was allowed to take; null: L1 rules';
COMMENT ON COLUMN engine_minute.batch_tokens IS 'computed for batch requests: the harvest';
COMMENT ON COLUMN engine_minute.sync_tokens IS 'computed for all other requests';
CREATE TABLE latency_minute (
  minute TIMESTAMP WITH TIME ZONE NOT NULL,
  writer TEXT NOT NULL,
  model TEXT NOT NULL,
  beside BOOLEAN NOT NULL,
  requests INTEGER NOT NULL,
  first_token INTEGER[] NOT NULL,
  gap INTEGER[] NOT NULL,
  CONSTRAINT latency_minute_pkey PRIMARY KEY (minute, model, beside, writer)
);
COMMENT ON COLUMN latency_minute.minute IS 'the minute in which the answers ended';
COMMENT ON COLUMN latency_minute.writer IS 'the process that measured them';
COMMENT ON COLUMN latency_minute.beside IS 'whether batch requests were in the engine, as its worker last said';
COMMENT ON COLUMN latency_minute.first_token IS 'bucket, count, bucket, count, … of a sketch';
COMMENT ON COLUMN latency_minute.gap IS 'the same of the time between two tokens';
CREATE TABLE batch_phase (
  batch_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  tenant_id INTEGER NOT NULL,
  until TIMESTAMP WITH TIME ZONE,
  code TEXT NOT NULL,
  CONSTRAINT batch_phase_pkey PRIMARY KEY (batch_id, at)
)
WITH (fillfactor = 80);
CREATE INDEX batch_phase_now ON batch_phase (tenant_id, code, batch_id) WHERE until is null;
CREATE UNIQUE INDEX batch_phase_open ON batch_phase (batch_id) WHERE until is null;
COMMENT ON COLUMN batch_phase.at IS 'when the steward first saw it';
COMMENT ON COLUMN batch_phase.until IS 'when the next one began, or the batch ended; null: it lasts';
COMMENT ON COLUMN batch_phase.code IS 'what the batch waits for, as `why` names it; running: it does not wait';
CREATE TABLE batch_error (
  batch_id BIGINT NOT NULL,
  run SMALLINT NOT NULL,
  error TEXT NOT NULL,
  tenant_id INTEGER NOT NULL,
  n INTEGER NOT NULL,
  CONSTRAINT batch_error_pkey PRIMARY KEY (batch_id, run, error)
);
CREATE INDEX batch_error_class ON batch_error (tenant_id, error, batch_id);
COMMENT ON COLUMN batch_error.error IS 'the class of the error (app.engines.outcome)';
COMMENT ON COLUMN batch_error.n IS 'items of the run that failed with it, as folded';
ALTER TABLE batch_delta ADD COLUMN errors TEXT[];
COMMENT ON COLUMN batch_delta.errors IS 'the classes of the errors of its failed items; null: none failed';
COMMENT ON COLUMN batch.name IS 'for people: of its metadata, else of its file; null: it has none';
COMMENT ON COLUMN batch.est_tokens IS 'estimated tokens of all its items; null: queued before this was kept';
COMMENT ON COLUMN item_result.error IS 'the class of its error (app.engines.outcome); null: ok, or not known';
COMMENT ON COLUMN item_result.engine_id IS 'the engine that it ran on; null: not known';
COMMENT ON COLUMN item_result.queued_ms IS 'from the begin of the run until it was sent; null: it was not, or not known';
COMMENT ON COLUMN item_result.first_token_ms IS 'from the first send of the lease to the first token; null: not known';
COMMENT ON COLUMN item_result.ran_ms IS 'from the first send of the lease to the end; null: not known';
"""

DOWN = """
DROP INDEX item_result_failed;
DROP INDEX item_result_error;
ALTER TABLE item_result DROP COLUMN error, DROP COLUMN engine_id, DROP COLUMN queued_ms, DROP COLUMN first_token_ms,
  DROP COLUMN ran_ms;
ALTER TABLE batch_delta DROP COLUMN errors;
DROP INDEX batch_name;
DROP INDEX batch_listed_all;
ALTER TABLE batch DROP COLUMN name, DROP COLUMN est_tokens;
DROP TABLE batch_error;
DROP TABLE batch_phase;
DROP TABLE latency_minute;
DROP TABLE engine_minute;
DROP TABLE engine_sample;
DROP TABLE change;
"""


def upgrade() -> None:
    """Six tables, columns, and indexes."""
    run_script(op.get_bind(), COLUMNS)
    build(*INDEXES)
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """The history is lost; batches and results stay."""
    run_script(op.get_bind(), DOWN)
