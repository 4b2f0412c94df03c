-- The queue: items and results, the chunks in which workers lease them, and the fair order of accounts.
--
-- Items and results are only inserted, into daily partitions by batch id; the steward makes and drops the days. They have no foreign
-- keys: a KEY SHARE lock for each row would slow COPY down. The only mutable work table is that of open chunks. A finished chunk is
-- deleted, so the cost of a claim does not depend on the backlog.
--
-- Here as in the other files, columns that hold contents of requests and answers have no statistics: ANALYZE copies values into
-- pg_statistic, where they would outlive their row.

-- An item: a request of a batch.
CREATE TABLE item_payload (
  batch_id BIGINT NOT NULL,
  seq INTEGER NOT NULL,
  reference TEXT,
  model TEXT,
  endpoint TEXT,
  affinity TEXT,
  est_tokens INTEGER NOT NULL,
  wants_json BOOLEAN NOT NULL,
  body BYTEA NOT NULL,
  stored BOOLEAN DEFAULT false NOT NULL,
  line_id INTEGER,
  vault BYTEA,
  CONSTRAINT item_payload_pkey PRIMARY KEY (batch_id, seq)
) PARTITION BY RANGE (batch_id);
ALTER TABLE item_payload ALTER body SET STATISTICS 0, ALTER vault SET STATISTICS 0;
COMMENT ON COLUMN item_payload.seq IS 'input order, from 0';
COMMENT ON COLUMN item_payload.reference IS 'external_reference or custom_id';
COMMENT ON COLUMN item_payload.model IS 'catalogue model; null: the batch''s';
COMMENT ON COLUMN item_payload.endpoint IS 'engine route; null: the batch''s';
COMMENT ON COLUMN item_payload.wants_json IS 'the answer is JSON by request';
COMMENT ON COLUMN item_payload.body IS 'the caller''s item, redacted where the policy says so';
COMMENT ON COLUMN item_payload.stored IS 'true: body is the key of the object that contains the body';
COMMENT ON COLUMN item_payload.line_id IS 'line at whose price a rule of the policy moved it to its model; null: that of the batch''s model';
COMMENT ON COLUMN item_payload.vault IS 'sealed values of the placeholders in its body; null: it has none';

-- The result of an item in one run of its batch.
CREATE TABLE item_result (
  batch_id BIGINT NOT NULL,
  seq INTEGER NOT NULL,
  run SMALLINT NOT NULL,
  ok SMALLINT NOT NULL,
  attempt SMALLINT NOT NULL,
  yields SMALLINT DEFAULT 0 NOT NULL,
  prompt_tokens INTEGER DEFAULT 0 NOT NULL,
  cached_tokens INTEGER DEFAULT 0 NOT NULL,
  completion_tokens INTEGER DEFAULT 0 NOT NULL,
  finished_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
  body BYTEA NOT NULL,
  stored BOOLEAN DEFAULT false NOT NULL,
  error TEXT,
  engine_id BIGINT,
  queued_ms INTEGER,
  first_token_ms INTEGER,
  ran_ms INTEGER,
  details JSONB,
  CONSTRAINT item_result_pkey PRIMARY KEY (batch_id, seq, run)
) PARTITION BY RANGE (batch_id);
CREATE INDEX item_result_error ON item_result (batch_id, error, seq) WHERE ok = 0;
CREATE INDEX item_result_failed ON item_result (batch_id, seq) WHERE ok = 0;
ALTER TABLE item_result ALTER body SET STATISTICS 0;
COMMENT ON COLUMN item_result.ok IS '1: body is the engine''s answer; 0: body is an error';
COMMENT ON COLUMN item_result.attempt IS '0: no engine was asked for it';
COMMENT ON COLUMN item_result.stored IS 'true: body is the key of the object that contains the body';
COMMENT ON COLUMN item_result.error IS 'the class of its error (app.engines.outcome); null: ok, or not known';
COMMENT ON COLUMN item_result.engine_id IS 'the engine that it ran on; null: not known';
COMMENT ON COLUMN item_result.queued_ms IS 'from the begin of the run until it was sent; null: it was not, or not known';
COMMENT ON COLUMN item_result.first_token_ms IS 'from the first send of the lease to the first token; null: not known';
COMMENT ON COLUMN item_result.ran_ms IS 'from the first send of the lease to the end; null: not known';
COMMENT ON COLUMN item_result.details IS 'other parts of the tokens that engines counted, as input.NAME or output.NAME; null: none';

-- Items of a batch that are leased together.
CREATE TABLE chunk (
  chunk_id BIGINT GENERATED ALWAYS AS IDENTITY,
  batch_id BIGINT NOT NULL,
  run SMALLINT NOT NULL,
  tenant_id INTEGER NOT NULL,
  pool_id SMALLINT NOT NULL,
  lo INTEGER NOT NULL,
  hi INTEGER NOT NULL,
  seqs INTEGER[],
  n INTEGER NOT NULL CONSTRAINT chunk_n_positive CHECK (n > 0),
  est_tokens INTEGER NOT NULL,
  deadline TIMESTAMP WITH TIME ZONE NOT NULL,
  state TEXT DEFAULT 'ready' NOT NULL CONSTRAINT chunk_state CHECK (state in ('unreserved', 'ready', 'leased', 'delayed', 'held')),
  attempt SMALLINT DEFAULT 0 NOT NULL,
  deaths SMALLINT DEFAULT 0 NOT NULL,
  retries SMALLINT DEFAULT 0 NOT NULL,
  charged_for BIGINT,
  excused SMALLINT,
  token INTEGER DEFAULT 0 NOT NULL,
  worker_id BIGINT,
  not_before TIMESTAMP WITH TIME ZONE,
  done INTEGER DEFAULT 0 NOT NULL,
  failed INTEGER DEFAULT 0 NOT NULL,
  prompt_tokens BIGINT,
  cached_tokens BIGINT,
  completion_tokens BIGINT,
  line_id INTEGER,
  budgets INTEGER[],
  maximum_cost BIGINT,
  maximum_tokens BIGINT,
  expected_cost BIGINT,
  expected_tokens BIGINT,
  reserved_cost BIGINT,
  reserved_tokens BIGINT,
  reserved_at TIMESTAMP WITH TIME ZONE,
  short BOOLEAN,
  CONSTRAINT chunk_pkey PRIMARY KEY (chunk_id),
  CONSTRAINT chunk_leased_has_worker CHECK ((state = 'leased') = (worker_id is not null)),
  CONSTRAINT chunk_delayed_has_time CHECK ((state = 'delayed') = (not_before is not null))
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX chunk_batch ON chunk (batch_id);
CREATE INDEX chunk_charged ON chunk (charged_for) WHERE charged_for is not null;
CREATE INDEX chunk_due ON chunk (not_before) WHERE state = 'delayed';
CREATE INDEX chunk_edf ON chunk (pool_id, deadline) WHERE state = 'ready';
CREATE INDEX chunk_fair ON chunk (pool_id, tenant_id, deadline, chunk_id) WHERE state = 'ready';
CREATE INDEX chunk_held ON chunk (batch_id) WHERE state = 'held';
CREATE INDEX chunk_tentative ON chunk (tenant_id, deadline, chunk_id) WHERE state = 'ready' and reserved_tokens is not null;
CREATE INDEX chunk_unreserved ON chunk (budgets, pool_id, deadline, chunk_id) WHERE state = 'unreserved';
CREATE INDEX chunk_worker ON chunk (worker_id) WHERE state = 'leased';
CREATE INDEX chunk_returned ON chunk (batch_id) WHERE state <> 'leased' and token > 1;
COMMENT ON COLUMN chunk.seqs IS 'its items in their order (retries, grouped prefixes); null: lo to hi';
COMMENT ON COLUMN chunk.attempt IS 'how many losses of workers were charged to it';
COMMENT ON COLUMN chunk.deaths IS 'engine deaths charged to its items';
COMMENT ON COLUMN chunk.retries IS 'rounds of transient engine errors';
COMMENT ON COLUMN chunk.charged_for IS 'the worker whose loss was charged last; null: none, or taken back';
COMMENT ON COLUMN chunk.excused IS 'charges that were taken back; null: none, which takes no space in the row';
COMMENT ON COLUMN chunk.token IS 'fence: grows on claim and reap; 0: never leased';
COMMENT ON COLUMN chunk.prompt_tokens IS 'of the results that it has stored; null: none, which takes no space';
COMMENT ON COLUMN chunk.line_id IS 'line of its items; null: that of the batch';
COMMENT ON COLUMN chunk.budgets IS 'ids of the budgets that pay for it, in ascending order; null: none';
COMMENT ON COLUMN chunk.maximum_cost IS 'the most that it can cost, in 10^-9 of the currency; null: it has no budgets';
COMMENT ON COLUMN chunk.maximum_tokens IS 'the most tokens that it can use';
COMMENT ON COLUMN chunk.expected_cost IS 'what is reserved for it at most; null: the maximum';
COMMENT ON COLUMN chunk.expected_tokens IS 'the same in tokens';
COMMENT ON COLUMN chunk.reserved_cost IS 'what its budgets have reserved for it; null: nothing';
COMMENT ON COLUMN chunk.reserved_tokens IS 'the same in tokens';
COMMENT ON COLUMN chunk.reserved_at IS 'when that was reserved last; while it is unreserved: it was taken back';
COMMENT ON COLUMN chunk.short IS 'the steward has seen that the money that it waits for is not there; null: not seen so';

-- An account's place in the fair order of a pool.
CREATE TABLE sched (
  pool_id SMALLINT NOT NULL,
  tenant_id INTEGER NOT NULL,
  vtime DOUBLE PRECISION DEFAULT 0 NOT NULL,
  ready INTEGER DEFAULT 0 NOT NULL,
  inflight_tokens BIGINT DEFAULT 0 NOT NULL,
  served_tokens BIGINT DEFAULT 0 NOT NULL,
  drifts INTEGER DEFAULT 0 NOT NULL,
  turn DOUBLE PRECISION GENERATED ALWAYS AS (CASE WHEN ready > 0 THEN floor(vtime / 65536) END) STORED,
  first_deadline TIMESTAMP WITH TIME ZONE DEFAULT '-infinity' NOT NULL,
  first_chunk BIGINT DEFAULT 0 NOT NULL,
  CONSTRAINT sched_pkey PRIMARY KEY (pool_id, tenant_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX sched_turn ON sched (pool_id, turn) WHERE turn IS NOT NULL;
COMMENT ON COLUMN sched.vtime IS 'tokens served / weight';
COMMENT ON COLUMN sched.served_tokens IS 'estimated tokens of all items done; never decreases';
COMMENT ON COLUMN sched.drifts IS 'how often the caches had to be corrected';
COMMENT ON COLUMN sched.turn IS 'virtual time in steps, so that the index of the order seldom changes; null: nothing is ready';
COMMENT ON COLUMN sched.first_deadline IS 'the mark: no ready chunk comes before first_deadline and first_chunk';

-- What an ended lease has used, until the steward has added it to the fair order.
CREATE TABLE sched_delta (
  delta_id BIGINT GENERATED ALWAYS AS IDENTITY,
  pool_id SMALLINT NOT NULL,
  tenant_id INTEGER NOT NULL,
  est_tokens INTEGER NOT NULL,
  used_tokens BIGINT NOT NULL,
  served_tokens BIGINT NOT NULL,
  CONSTRAINT sched_delta_pkey PRIMARY KEY (delta_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON COLUMN sched_delta.est_tokens IS 'of the chunk: what its claim has charged';
COMMENT ON COLUMN sched_delta.served_tokens IS 'estimated tokens of the items that have a result';

-- How fast a pool has worked, for forecasts.
CREATE TABLE pace (
  pool_id SMALLINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  served_tokens BIGINT NOT NULL,
  tokens_per_second DOUBLE PRECISION,
  spread DOUBLE PRECISION,
  CONSTRAINT pace_pkey PRIMARY KEY (pool_id, at)
);
COMMENT ON COLUMN pace.served_tokens IS 'estimated tokens of all tenants; never decreases';
COMMENT ON COLUMN pace.tokens_per_second IS 'pace over the last minutes with work; null: too little time was measured';
COMMENT ON COLUMN pace.spread IS 'relative error of recent forecasts; null: too little time';
