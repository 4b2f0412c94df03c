-- Pipelines: their stages, whose items are those of their batches, and what is still to be handed from one stage to the next.

-- A pipeline: its definition, and how far its input is taken.
CREATE TABLE pipeline (
  pipeline_id BIGINT NOT NULL,
  request_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  name TEXT,
  state TEXT DEFAULT 'open' NOT NULL
    CONSTRAINT pipeline_state CHECK (state in ('open', 'paused', 'cancelling', 'expiring', 'completed', 'failed', 'cancelled', 'expired')),
  run SMALLINT DEFAULT 1 NOT NULL,
  definition BYTEA NOT NULL,
  inputs INTEGER,
  source_id BIGINT,
  copied INTEGER DEFAULT 0 NOT NULL,
  budget BIGINT,
  paused_for TEXT,
  overruled BOOLEAN DEFAULT false NOT NULL,
  deadline TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  finalized_at TIMESTAMP WITH TIME ZONE,
  idempotency_key TEXT,
  request_hash BYTEA,
  CONSTRAINT pipeline_pkey PRIMARY KEY (pipeline_id),
  CONSTRAINT pipeline_tenant_id_idempotency_key_key UNIQUE (tenant_id, idempotency_key),
  CONSTRAINT pipeline_finalized CHECK ((finalized_at is not null) = (state in ('completed', 'failed', 'cancelled', 'expired'))),
  CONSTRAINT pipeline_pipeline_id_fkey FOREIGN KEY (pipeline_id) REFERENCES batch (batch_id) ON DELETE CASCADE,
  CONSTRAINT pipeline_request_id_key UNIQUE (request_id),
  CONSTRAINT pipeline_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
CREATE INDEX pipeline_listed ON pipeline (tenant_id, created_at, pipeline_id);
CREATE INDEX pipeline_name ON pipeline (tenant_id, name text_pattern_ops) WHERE name is not null;
CREATE INDEX pipeline_open ON pipeline (pipeline_id) WHERE finalized_at is null;
ALTER TABLE pipeline ALTER definition SET STATISTICS 0;
COMMENT ON COLUMN pipeline.pipeline_id IS 'the batch_id of its input, stage 0';
COMMENT ON COLUMN pipeline.request_id IS 'the id callers see';
COMMENT ON COLUMN pipeline.definition IS 'JSON; sealed with the key of its input where that is sealed; empty: its contents were deleted';
COMMENT ON COLUMN pipeline.inputs IS 'lines of its input; null: its source is not final yet';
COMMENT ON COLUMN pipeline.source_id IS 'the batch whose items become its input; null: it has lines of its own, or all are copied';
COMMENT ON COLUMN pipeline.copied IS 'items of its source with numbers below this are copied';
COMMENT ON COLUMN pipeline.budget IS 'the most that it may cost, in 10^-9 of the currency; null: no limit';
COMMENT ON COLUMN pipeline.paused_for IS 'why it is paused; null: it is not';
COMMENT ON COLUMN pipeline.overruled IS 'it was resumed after a pause, so failures and many items do not pause it again';
COMMENT ON COLUMN pipeline.deadline IS 'when the fair order tries to have it done';
COMMENT ON COLUMN pipeline.expires_at IS 'when unfinished items are given up; null: never';

-- A stage of a pipeline: a batch, and how many of the parent's results it has taken.
CREATE TABLE stage (
  pipeline_id BIGINT NOT NULL,
  n SMALLINT NOT NULL,
  batch_id BIGINT NOT NULL,
  name TEXT NOT NULL,
  taken INTEGER DEFAULT 0 NOT NULL,
  ran INTEGER DEFAULT 0 NOT NULL,
  passed INTEGER DEFAULT 0 NOT NULL,
  dropped INTEGER DEFAULT 0 NOT NULL,
  refused INTEGER DEFAULT 0 NOT NULL,
  packs INTEGER,
  waits_for SMALLINT[],
  CONSTRAINT stage_pkey PRIMARY KEY (pipeline_id, n),
  CONSTRAINT stage_pipeline_id_fkey FOREIGN KEY (pipeline_id) REFERENCES pipeline (pipeline_id) ON DELETE CASCADE,
  CONSTRAINT stage_batch_id_key UNIQUE (batch_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
COMMENT ON COLUMN stage.n IS '0: the input; from 1: a stage of the definition, re-asks and escalations counted';
COMMENT ON COLUMN stage.taken IS 'results of its parent that were handed on to it';
COMMENT ON COLUMN stage.ran IS 'items that are requests, or were parked';
COMMENT ON COLUMN stage.passed IS 'items with a result without a request: the parent''s, or a picked choice';
COMMENT ON COLUMN stage.dropped IS 'items of the parent that made none here';
COMMENT ON COLUMN stage.refused IS 'items that were errors from the beginning';
COMMENT ON COLUMN stage.packs IS 'packs by value; -1: they are not known yet; null: it does not pack by value';
COMMENT ON COLUMN stage.waits_for IS 'stages that must be final before it starts; null: it has started, or waits for none';

-- An item that waits for an answer from outside, without a lease.
CREATE TABLE parked (
  batch_id BIGINT NOT NULL,
  seq INTEGER NOT NULL,
  run SMALLINT NOT NULL,
  state TEXT DEFAULT 'waiting' NOT NULL CONSTRAINT parked_state CHECK (state in ('waiting', 'answered', 'timed_out', 'dropped')),
  due TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT parked_pkey PRIMARY KEY (batch_id, seq)
) WITH (fillfactor = 80);
CREATE INDEX parked_due ON parked (due) WHERE state = 'waiting';
CREATE INDEX parked_waiting ON parked (batch_id, seq) WHERE state = 'waiting';
COMMENT ON COLUMN parked.due IS 'when it becomes an error if nobody has answered';

-- A marker: results that are to be handed on. The transaction that makes the children deletes it, so a result is handed on once.
CREATE TABLE handoff (
  handoff_id BIGINT GENERATED ALWAYS AS IDENTITY,
  batch_id BIGINT NOT NULL,
  run SMALLINT NOT NULL,
  seqs INTEGER[] NOT NULL,
  bytes BIGINT NOT NULL,
  input BOOLEAN DEFAULT false NOT NULL,
  tries SMALLINT DEFAULT 0 NOT NULL,
  due TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT handoff_pkey PRIMARY KEY (batch_id, handoff_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX handoff_order ON handoff (input, handoff_id) WHERE due < 'infinity';
COMMENT ON COLUMN handoff.run IS '0: the items are packs of the batch, to be made';
COMMENT ON COLUMN handoff.seqs IS 'items of the batch that have a result of this run';
COMMENT ON COLUMN handoff.bytes IS 'size of these results';
COMMENT ON COLUMN handoff.input IS 'lines of the input of a pipeline, which are taken last';
COMMENT ON COLUMN handoff.tries IS 'how often handing them on has failed';
COMMENT ON COLUMN handoff.due IS 'when it is tried next; infinity: its pipeline is paused, or it was given up';

-- A pack that waits for its inputs.
CREATE TABLE gather (
  batch_id BIGINT NOT NULL,
  seq INTEGER NOT NULL,
  open INTEGER NOT NULL,
  CONSTRAINT gather_pkey PRIMARY KEY (batch_id, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN gather.batch_id IS 'a stage that packs';
COMMENT ON COLUMN gather.open IS 'inputs that the pack waits for; 0: it was made, or will never be';
