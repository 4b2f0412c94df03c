-- Batches, and what is counted and remembered of them.

CREATE SEQUENCE batch_seq;
CREATE FUNCTION next_batch_id() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ select (((now() at time zone 'utc')::date - date '2024-01-01')::bigint << 36)
          | (nextval('batch_seq') & ((1::bigint << 36) - 1)) $$;

-- Adds up the parts of a usage, by name.
CREATE FUNCTION add_details(a jsonb, b jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS
$$ select jsonb_object_agg(name, n) from (
     select name, sum(value::bigint) as n from (select * from jsonb_each_text(a) union all select * from jsonb_each_text(b))
     each (name, value) group by name) sums $$;
CREATE AGGREGATE sum_details(jsonb) (sfunc = add_details, stype = jsonb, combinefunc = add_details, parallel = safe);

-- A batch. The high bits of its id are the day of its submit (UTC), so the partitions by batch_id are days, and every access by id reads one.
CREATE TABLE batch (
  batch_id BIGINT DEFAULT next_batch_id() NOT NULL,
  request_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  model TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  state TEXT DEFAULT 'open' NOT NULL
    CONSTRAINT batch_state CHECK (state in ('open', 'paused', 'cancelling', 'expiring', 'completed', 'failed', 'cancelled', 'expired')),
  run SMALLINT DEFAULT 1 NOT NULL,
  total INTEGER NOT NULL CONSTRAINT batch_total CHECK (total >= 0),
  ok INTEGER DEFAULT 0 NOT NULL,
  failed INTEGER DEFAULT 0 NOT NULL,
  prompt_tokens BIGINT DEFAULT 0 NOT NULL,
  cached_tokens BIGINT DEFAULT 0 NOT NULL,
  completion_tokens BIGINT DEFAULT 0 NOT NULL,
  bytes BIGINT DEFAULT 0 NOT NULL,
  cost NUMERIC DEFAULT 0 NOT NULL,
  deadline TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  finalized_at TIMESTAMP WITH TIME ZONE,
  idempotency_key TEXT,
  request_hash BYTEA,
  correlation_id TEXT,
  traceparent TEXT,
  affinity TEXT,
  tags TEXT[] DEFAULT '{}' NOT NULL,
  meta JSONB,
  kind TEXT DEFAULT 'batch' NOT NULL CONSTRAINT batch_kind CHECK (kind in ('batch', 'response', 'flex', 'stage', 'checkpoint')),
  tells_items BOOLEAN DEFAULT false NOT NULL,
  open_ended BOOLEAN DEFAULT false NOT NULL,
  line_id INTEGER,
  policy JSONB,
  model_lines INTEGER[],
  diverted_to TEXT[],
  has_sessions BOOLEAN DEFAULT false NOT NULL,
  name TEXT,
  est_tokens BIGINT,
  shredded_at TIMESTAMP WITH TIME ZONE,
  pipeline_id BIGINT,
  parent_id BIGINT,
  feeds BOOLEAN DEFAULT false NOT NULL,
  fed BOOLEAN DEFAULT false NOT NULL,
  details JSONB,
  CONSTRAINT batch_pkey PRIMARY KEY (batch_id),
  CONSTRAINT batch_tenant_id_idempotency_key_key UNIQUE (tenant_id, idempotency_key),
  CONSTRAINT batch_finalized CHECK ((finalized_at is not null) = (state in ('completed', 'failed', 'cancelled', 'expired'))),
  CONSTRAINT batch_request_id_key UNIQUE (request_id),
  CONSTRAINT batch_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
) WITH (fillfactor = 80);
CREATE INDEX batch_expiry ON batch (expires_at) WHERE expires_at is not null and state in ('open', 'paused');
CREATE INDEX batch_fed ON batch (parent_id) WHERE fed;
CREATE INDEX batch_feeding ON batch (batch_id) WHERE feeds and finalized_at is not null;
CREATE INDEX batch_halted ON batch (state) WHERE state in ('paused', 'cancelling', 'expiring');
CREATE INDEX batch_listed ON batch (tenant_id, created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_listed_all ON batch (created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_listed_by_model ON batch (tenant_id, model, state, created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_listed_by_state ON batch (tenant_id, state, created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_meta ON batch USING gin (meta jsonb_path_ops) WHERE meta is not null;
CREATE INDEX batch_name ON batch (tenant_id, name text_pattern_ops) WHERE name is not null;
CREATE INDEX batch_open ON batch (created_at) WHERE finalized_at is null;
CREATE INDEX batch_open_ended ON batch (model, batch_id) WHERE open_ended;
CREATE INDEX batch_single ON batch (tenant_id, request_hash, created_at) WHERE kind <> 'batch';
CREATE INDEX batch_tags ON batch USING gin (tags) WHERE tags <> '{}';
COMMENT ON COLUMN batch.request_id IS 'the id callers see';
COMMENT ON COLUMN batch.model IS 'the name the caller used';
COMMENT ON COLUMN batch.endpoint IS 'the engine route of its items unless an item has its own';
COMMENT ON COLUMN batch.run IS 'number of the current run, from 1';
COMMENT ON COLUMN batch.cost IS 'of the results whose lines have the currency of its own line, in 10^-12 of it';
COMMENT ON COLUMN batch.deadline IS 'when the fair order tries to have it done';
COMMENT ON COLUMN batch.expires_at IS 'when unfinished items are given up; null: never';
COMMENT ON COLUMN batch.opened_at IS 'when the current run began';
COMMENT ON COLUMN batch.traceparent IS 'W3C trace context of the submit';
COMMENT ON COLUMN batch.affinity IS 'x-session-affinity of the submit';
COMMENT ON COLUMN batch.kind IS 'response: a background response; flex: a flex call; both have one item; stage: of a pipeline; checkpoint: a summary';
COMMENT ON COLUMN batch.tells_items IS 'a subscription wants events of its items, so a flush writes them';
COMMENT ON COLUMN batch.open_ended IS 'an answer without a limit of its own may use the rest of the context window';
COMMENT ON COLUMN batch.line_id IS 'line of its items; null: not known';
COMMENT ON COLUMN batch.policy IS 'what rules of the policy decided at its submit; null: nothing';
COMMENT ON COLUMN batch.model_lines IS 'lines of its models, the first one''s first; null: it has one model, of line_id';
COMMENT ON COLUMN batch.diverted_to IS 'models to which the policy moved waiting items; null: none';
COMMENT ON COLUMN batch.has_sessions IS 'whether items of it belong to sessions';
COMMENT ON COLUMN batch.name IS 'for people: of its metadata, else of its file; null: it has none';
COMMENT ON COLUMN batch.est_tokens IS 'estimated tokens of all its items; null: they come later';
COMMENT ON COLUMN batch.shredded_at IS 'when its contents were deleted; null: they were not';
COMMENT ON COLUMN batch.pipeline_id IS 'the pipeline that it is a stage of: the batch_id of its input; null: none';
COMMENT ON COLUMN batch.parent_id IS 'the batch from whose results its items are made; null: none';
COMMENT ON COLUMN batch.feeds IS 'its results are handed on: each flush leaves a marker';
COMMENT ON COLUMN batch.fed IS 'more items may still come';
COMMENT ON COLUMN batch.details IS 'other parts of the tokens that engines counted, as input.NAME or output.NAME; null: none';

-- The wrapped data key of a sealed batch.
CREATE TABLE batch_key (
  batch_id BIGINT NOT NULL,
  kek TEXT NOT NULL,
  wrapped BYTEA NOT NULL,
  only_vaults BOOLEAN DEFAULT false NOT NULL,
  failed_at TIMESTAMP WITH TIME ZONE,
  failure TEXT,
  CONSTRAINT batch_key_pkey PRIMARY KEY (batch_id),
  CONSTRAINT batch_key_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE
);
CREATE INDEX batch_key_kek ON batch_key (kek);
COMMENT ON COLUMN batch_key.kek IS 'name of the key at the key provider';
COMMENT ON COLUMN batch_key.wrapped IS 'the data key of its bodies, wrapped';
COMMENT ON COLUMN batch_key.only_vaults IS 'it seals only the values behind placeholders; the bodies are in the clear';
COMMENT ON COLUMN batch_key.failed_at IS 'when a worker could not unwrap it';
COMMENT ON COLUMN batch_key.failure IS 'why it could not';

-- What a finished chunk adds to its batch, until the steward has added it.
CREATE TABLE batch_delta (
  delta_id BIGINT GENERATED ALWAYS AS IDENTITY,
  batch_id BIGINT NOT NULL,
  ok INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  cached_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  line_id INTEGER,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  repeats INTEGER DEFAULT 0 NOT NULL,
  retried INTEGER DEFAULT 0 NOT NULL,
  retried_ok INTEGER DEFAULT 0 NOT NULL,
  yields INTEGER DEFAULT 0 NOT NULL,
  budgets INTEGER[],
  reserved_cost BIGINT,
  reserved_tokens BIGINT,
  maximum_cost BIGINT,
  maximum_tokens BIGINT,
  engine_ms BIGINT DEFAULT 0 NOT NULL,
  first_tokens BYTEA DEFAULT '' NOT NULL,
  durations BYTEA DEFAULT '' NOT NULL,
  errors TEXT[],
  added INTEGER DEFAULT 0 NOT NULL,
  bytes BIGINT DEFAULT 0 NOT NULL,
  unrun INTEGER DEFAULT 0 NOT NULL,
  unrun_ok INTEGER DEFAULT 0 NOT NULL,
  details JSONB,
  CONSTRAINT batch_delta_pkey PRIMARY KEY (delta_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX batch_delta_batch ON batch_delta (batch_id);
COMMENT ON COLUMN batch_delta.line_id IS 'line of the results; null: that of the batch';
COMMENT ON COLUMN batch_delta.at IS 'when the chunk ended';
COMMENT ON COLUMN batch_delta.budgets IS 'of the chunk; null: it had none';
COMMENT ON COLUMN batch_delta.reserved_cost IS 'what its budgets had reserved for it, which returns';
COMMENT ON COLUMN batch_delta.maximum_cost IS 'the most that the results could have cost';
COMMENT ON COLUMN batch_delta.engine_ms IS 'milliseconds of an engine that the items had';
COMMENT ON COLUMN batch_delta.first_tokens IS 'a byte for each answer whose time to the first token is known: its bucket in app.metering.sketch';
COMMENT ON COLUMN batch_delta.durations IS 'the same of whole answers';
COMMENT ON COLUMN batch_delta.errors IS 'the classes of the errors of its failed items; null: none failed';
COMMENT ON COLUMN batch_delta.added IS 'items that were added to the batch';
COMMENT ON COLUMN batch_delta.bytes IS 'of their requests';
COMMENT ON COLUMN batch_delta.unrun IS 'of the results, those that no engine was asked for';
COMMENT ON COLUMN batch_delta.unrun_ok IS 'of these, the answers';
COMMENT ON COLUMN batch_delta.details IS 'other parts of the tokens that engines counted, as input.NAME or output.NAME; null: none';

-- What the batches of an account counted that are no longer in batch, less the results that no engine was asked for, which are
-- in batch, but in no ledger. With it the ledger can be compared with the queue.
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

-- What a batch waited for, and when. No foreign key, whose lock would write to the batch's row at each insert.
CREATE TABLE batch_phase (
  batch_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  tenant_id INTEGER NOT NULL,
  until TIMESTAMP WITH TIME ZONE,
  code TEXT NOT NULL,
  CONSTRAINT batch_phase_pkey PRIMARY KEY (batch_id, at)
) WITH (fillfactor = 80);
CREATE INDEX batch_phase_now ON batch_phase (tenant_id, code, batch_id) WHERE until is null;
CREATE UNIQUE INDEX batch_phase_open ON batch_phase (batch_id) WHERE until is null;
COMMENT ON COLUMN batch_phase.at IS 'when the steward first saw it';
COMMENT ON COLUMN batch_phase.until IS 'when the next one began, or the batch ended; null: it lasts';
COMMENT ON COLUMN batch_phase.code IS 'what the batch waits for, as `why` names it; running: it does not wait';

-- Of what the items of a batch failed. No foreign key, as above.
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

-- A batch that starts when another has ended: a row for each pair, until it starts. It is paused meanwhile.
CREATE TABLE dependency (
  batch_id BIGINT NOT NULL,
  needs_id BIGINT NOT NULL,
  held BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT dependency_pkey PRIMARY KEY (batch_id, needs_id)
);
COMMENT ON COLUMN dependency.batch_id IS 'a batch that waits';
COMMENT ON COLUMN dependency.needs_id IS 'a batch that must be final first';
COMMENT ON COLUMN dependency.held IS 'its owner paused it meanwhile, so it stays paused in the end';

-- Events of a background response, several to a row, for callers that read its stream later.
CREATE TABLE response_events (
  batch_id BIGINT NOT NULL,
  number INTEGER NOT NULL,
  last INTEGER NOT NULL,
  body BYTEA NOT NULL,
  CONSTRAINT response_events_pkey PRIMARY KEY (batch_id, number),
  CONSTRAINT response_events_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE
);
ALTER TABLE response_events ALTER body SET STATISTICS 0;
COMMENT ON COLUMN response_events.number IS 'sequence number of the first event of the row';
COMMENT ON COLUMN response_events.last IS 'sequence number of the last event of the row';
COMMENT ON COLUMN response_events.body IS 'a JSON array';

-- A batch whose contents are being deleted. The row goes once nothing of them is left.
CREATE TABLE shredding (
  batch_id BIGINT NOT NULL,
  CONSTRAINT shredding_pkey PRIMARY KEY (batch_id),
  CONSTRAINT shredding_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE
);
