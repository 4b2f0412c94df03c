-- Engines, the workers that control them, and what the controller did.

-- The engines that serve one model.
CREATE TABLE pool (
  pool_id SMALLINT GENERATED ALWAYS AS IDENTITY,
  model TEXT NOT NULL,
  context_window INTEGER,
  task TEXT,
  CONSTRAINT pool_pkey PRIMARY KEY (pool_id),
  CONSTRAINT pool_model_key UNIQUE (model)
);
COMMENT ON COLUMN pool.context_window IS 'context window in tokens that callers are promised; null: as in the catalogue';
COMMENT ON COLUMN pool.task IS 'task of an adopted model; null: as in the catalogue';

-- What workers and autoscalers need to know of a pool. The steward writes it, so that not each of them computes it.
CREATE TABLE pool_status (
  pool_id SMALLINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  workers INTEGER NOT NULL,
  engines INTEGER NOT NULL,
  slack DOUBLE PRECISION,
  scarce BOOLEAN NOT NULL,
  engine_pace DOUBLE PRECISION,
  start_seconds DOUBLE PRECISION,
  deadlines TIMESTAMP WITH TIME ZONE[] NOT NULL,
  tokens DOUBLE PRECISION[] NOT NULL,
  CONSTRAINT pool_status_pkey PRIMARY KEY (pool_id)
) WITH (fillfactor = 50);
COMMENT ON COLUMN pool_status.at IS 'when the steward wrote the row';
COMMENT ON COLUMN pool_status.workers IS 'workers with a lease';
COMMENT ON COLUMN pool_status.engines IS 'engines that are ready';
COMMENT ON COLUMN pool_status.slack IS 'the smallest share of its window that a batch has left; null: no batch has a deadline';
COMMENT ON COLUMN pool_status.scarce IS 'nothing is ready, and an engine has nothing';
COMMENT ON COLUMN pool_status.engine_pace IS 'estimated tokens per second of one engine, as last measured; null: never';
COMMENT ON COLUMN pool_status.start_seconds IS 'the longest start of an engine; null: none was measured';
COMMENT ON COLUMN pool_status.deadlines IS 'deadlines of work that may run, the earliest first, those close together as one';
COMMENT ON COLUMN pool_status.tokens IS 'estimated tokens that are due by each deadline';

-- An engine.
CREATE TABLE engine (
  engine_id BIGINT GENERATED ALWAYS AS IDENTITY,
  name TEXT NOT NULL,
  pool_id SMALLINT,
  url TEXT NOT NULL,
  arrival_url TEXT,
  mode TEXT NOT NULL CONSTRAINT engine_mode CHECK (mode in ('managed', 'attached')),
  slots INTEGER DEFAULT 256 NOT NULL,
  state TEXT DEFAULT 'starting' NOT NULL CONSTRAINT engine_state CHECK (state in ('starting', 'ready', 'down')),
  worker_id BIGINT,
  reason TEXT,
  signal TEXT,
  value DOUBLE PRECISION,
  threshold DOUBLE PRECISION,
  reason_since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  detail TEXT,
  start_seconds DOUBLE PRECISION,
  expected_at TIMESTAMP WITH TIME ZONE,
  allowance SMALLINT DEFAULT 0 NOT NULL,
  intake TEXT DEFAULT 'open' NOT NULL CONSTRAINT engine_intake CHECK (intake in ('open', 'draining', 'returning')),
  intake_since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  batch_in_flight INTEGER DEFAULT 0 NOT NULL,
  in_engine JSONB DEFAULT '{}' NOT NULL,
  sync_in_flight INTEGER DEFAULT 0 NOT NULL,
  served_name TEXT,
  serves TEXT[] DEFAULT '{}' NOT NULL,
  max_model_len INTEGER,
  version TEXT,
  scheduling_policy TEXT,
  protection TEXT DEFAULT 'outside' NOT NULL CONSTRAINT engine_protection CHECK (protection in ('inside', 'outside')),
  problems JSONB DEFAULT '[]' NOT NULL,
  heartbeat_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  dialect TEXT DEFAULT 'vllm' NOT NULL,
  CONSTRAINT engine_pkey PRIMARY KEY (engine_id),
  CONSTRAINT engine_name_key UNIQUE (name),
  CONSTRAINT engine_pool_id_fkey FOREIGN KEY (pool_id) REFERENCES pool (pool_id)
) WITH (fillfactor = 50);
COMMENT ON COLUMN engine.pool_id IS 'null: it is not known yet which model it serves';
COMMENT ON COLUMN engine.arrival_url IS 'where the gateway announces synchronous requests to the worker';
COMMENT ON COLUMN engine.slots IS 'how many requests it runs at once';
COMMENT ON COLUMN engine.worker_id IS 'the worker that controls it, as long as the lease of that worker is valid';
COMMENT ON COLUMN engine.reason IS 'the controller''s last reason code';
COMMENT ON COLUMN engine.signal IS 'the signal that decided; its value was compared with threshold';
COMMENT ON COLUMN engine.reason_since IS 'when state or reason last changed';
COMMENT ON COLUMN engine.detail IS 'what is wrong with its telemetry, or how its process ended';
COMMENT ON COLUMN engine.start_seconds IS 'how long it recently took to start or to recover, as its worker measured';
COMMENT ON COLUMN engine.expected_at IS 'when it is expected to answer; null: it answers, or the time is not known';
COMMENT ON COLUMN engine.intake IS 'whether it takes new work, as the operator set it; it outlives the worker';
COMMENT ON COLUMN engine.batch_in_flight IS 'as its worker last reported';
COMMENT ON COLUMN engine.in_engine IS 'items in the engine by batch id, as its worker last reported';
COMMENT ON COLUMN engine.sync_in_flight IS 'announced by gateways, not ended';
COMMENT ON COLUMN engine.served_name IS 'its own name for the model; null: the same as the pool''s';
COMMENT ON COLUMN engine.serves IS 'all names that it serves';
COMMENT ON COLUMN engine.max_model_len IS 'its context window in tokens; null: it does not report it';
COMMENT ON COLUMN engine.scheduling_policy IS 'null: it does not report it';
COMMENT ON COLUMN engine.protection IS 'inside: our scheduler shares each step; outside: only the number of batch requests is controlled';
COMMENT ON COLUMN engine.problems IS 'list of code, message and remedy';
COMMENT ON COLUMN engine.dialect IS 'the kind of engine: which fields a request to it may have (app/engines/dialects.py)';

-- A registered worker and its lease.
CREATE TABLE worker (
  worker_id BIGINT GENERATED ALWAYS AS IDENTITY,
  pool_id SMALLINT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  renewed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  hungry BOOLEAN DEFAULT false NOT NULL,
  noted BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT worker_pkey PRIMARY KEY (worker_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON COLUMN worker.worker_id IS 'never reused: part of the fence';
COMMENT ON COLUMN worker.lease_until IS 'not indexed, so that a heartbeat is a HOT update';
COMMENT ON COLUMN worker.renewed_at IS 'when the lease was last renewed; not indexed, like lease_until';
COMMENT ON COLUMN worker.hungry IS 'it waits for work, as it last reported; not indexed, like lease_until';
COMMENT ON COLUMN worker.noted IS 'its lease has lapsed, and who took its engine has noted its loss';

-- A logged change of an engine's allowance. No foreign key, because its lock would write to the engine's row at every flush.
CREATE TABLE decision (
  decision_id BIGINT GENERATED ALWAYS AS IDENTITY,
  engine_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  layer TEXT NOT NULL CONSTRAINT decision_layer CHECK (layer in ('l1', 'l2')),
  was_allowance INTEGER NOT NULL,
  allowance INTEGER NOT NULL,
  was_reason TEXT NOT NULL,
  reason TEXT NOT NULL,
  signal TEXT,
  value DOUBLE PRECISION,
  threshold DOUBLE PRECISION,
  in_flight INTEGER NOT NULL,
  credited INTEGER NOT NULL,
  detail TEXT,
  CONSTRAINT decision_pkey PRIMARY KEY (engine_id, at, decision_id)
);
COMMENT ON COLUMN decision.allowance IS 'batch requests that may be in flight';
COMMENT ON COLUMN decision.signal IS 'the signal whose value was compared with threshold';
COMMENT ON COLUMN decision.in_flight IS 'batch requests in the engine';
COMMENT ON COLUMN decision.credited IS 'batch requests in flight that were admitted after the telemetry was read';
COMMENT ON COLUMN decision.detail IS 'what was wrong with the telemetry';

-- What an engine did, every 10 seconds, for a day.
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

-- The same by minute, for longer.
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
