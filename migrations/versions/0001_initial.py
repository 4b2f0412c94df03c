"""The first schema: tenants, engines, the chunk-lease queue, events and deliveries.

Revision ID: 0001
Revises:
"""

from alembic import op

from app.db.migrate import run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Batch ids carry their day in the high bits: RANGE(batch_id) partitions are days, and every access by id prunes.
BATCH_ID = """
CREATE SEQUENCE batch_seq;
CREATE FUNCTION next_batch_id() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ select (((now() at time zone 'utc')::date - date '2024-01-01')::bigint << 36)
          | (nextval('batch_seq') & ((1::bigint << 36) - 1)) $$;
ALTER TABLE batch ALTER COLUMN batch_id SET DEFAULT next_batch_id();
"""

SCHEMA = """
CREATE TABLE batch_delta (
    delta_id BIGINT GENERATED ALWAYS AS IDENTITY,
    batch_id BIGINT NOT NULL,
    ok INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    CONSTRAINT batch_delta_pkey PRIMARY KEY (delta_id)
)
 WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX batch_delta_batch ON batch_delta (batch_id);

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
    state TEXT DEFAULT 'ready' NOT NULL CONSTRAINT chunk_state CHECK (state in ('ready', 'leased', 'delayed')),
    attempt SMALLINT DEFAULT 0 NOT NULL,
    token INTEGER DEFAULT 0 NOT NULL,
    worker_id BIGINT,
    not_before TIMESTAMP WITH TIME ZONE,
    done INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT chunk_pkey PRIMARY KEY (chunk_id),
    CONSTRAINT chunk_leased_has_worker CHECK ((state = 'leased') = (worker_id is not null)),
    CONSTRAINT chunk_delayed_has_time CHECK ((state = 'delayed') = (not_before is not null))
)
 WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX chunk_batch ON chunk (batch_id);

CREATE INDEX chunk_due ON chunk (not_before) WHERE state = 'delayed';

CREATE INDEX chunk_fair ON chunk (pool_id, tenant_id, deadline, chunk_id) WHERE state = 'ready';

CREATE INDEX chunk_worker ON chunk (worker_id) WHERE state = 'leased';

COMMENT ON COLUMN chunk.seqs IS 'leased order where it is not lo..hi: retries, grouped prefixes';
COMMENT ON COLUMN chunk.attempt IS 'deaths of engine or worker that it was in';
COMMENT ON COLUMN chunk.token IS 'fence: grows on claim and reap; 0: never leased';

CREATE TABLE event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY,
    message_id UUID DEFAULT gen_random_uuid() NOT NULL,
    tenant_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    model TEXT NOT NULL,
    batch_id BIGINT NOT NULL,
    run SMALLINT NOT NULL,
    data BYTEA NOT NULL,
    occurred_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT event_pkey PRIMARY KEY (event_id),
    CONSTRAINT event_batch_id_run_kind_key UNIQUE (batch_id, run, kind)
);

COMMENT ON COLUMN event.message_id IS 'the webhook-id';

COMMENT ON COLUMN event.kind IS 'batch.queued, batch.succeeded, …';
COMMENT ON COLUMN event.data IS 'JSON; each endpoint''s format is made from it';

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
    CONSTRAINT item_payload_pkey PRIMARY KEY (batch_id, seq)
)
 PARTITION BY RANGE (batch_id);

COMMENT ON COLUMN item_payload.seq IS 'input order, from 0';
COMMENT ON COLUMN item_payload.reference IS 'external_reference or custom_id';
COMMENT ON COLUMN item_payload.model IS 'catalogue model; null: the batch''s';
COMMENT ON COLUMN item_payload.endpoint IS 'engine route; null: the batch''s';
COMMENT ON COLUMN item_payload.wants_json IS 'the answer is JSON by request';
COMMENT ON COLUMN item_payload.body IS 'the caller''s item, verbatim';

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
    CONSTRAINT item_result_pkey PRIMARY KEY (batch_id, seq, run)
)
 PARTITION BY RANGE (batch_id);

COMMENT ON COLUMN item_result.ok IS '1: body is the engine''s answer; 0: body is an error';

CREATE TABLE pool (
    pool_id SMALLINT GENERATED ALWAYS AS IDENTITY,
    model TEXT NOT NULL,
    CONSTRAINT pool_pkey PRIMARY KEY (pool_id),
    CONSTRAINT pool_model_key UNIQUE (model)
);

CREATE TABLE sched (
    pool_id SMALLINT NOT NULL,
    tenant_id INTEGER NOT NULL,
    vtime FLOAT(53) DEFAULT 0 NOT NULL,
    ready INTEGER DEFAULT 0 NOT NULL,
    inflight_tokens BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT sched_pkey PRIMARY KEY (pool_id, tenant_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN sched.vtime IS 'tokens served / weight';

CREATE TABLE tenant (
    tenant_id SERIAL NOT NULL,
    account_id TEXT NOT NULL,
    name TEXT NOT NULL,
    weight FLOAT DEFAULT '1' NOT NULL CONSTRAINT tenant_weight_positive CHECK (weight > 0),
    max_inflight_tokens BIGINT DEFAULT '1000000000' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT tenant_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenant_account_id_key UNIQUE (account_id)
);

COMMENT ON COLUMN tenant.account_id IS 'the account in a Workers AI URL';

CREATE TABLE worker (
    worker_id BIGINT GENERATED ALWAYS AS IDENTITY,
    pool_id SMALLINT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT worker_pkey PRIMARY KEY (worker_id)
)
 WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

COMMENT ON COLUMN worker.worker_id IS 'never reused: part of the fence';
COMMENT ON COLUMN worker.lease_until IS 'not indexed, so that a heartbeat is a HOT update';

CREATE TABLE api_key (
    key_id TEXT NOT NULL,
    tenant_id INTEGER NOT NULL,
    secret_hash BYTEA NOT NULL,
    name TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    last_used_at TIMESTAMP WITH TIME ZONE,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_key_pkey PRIMARY KEY (key_id),
    CONSTRAINT api_key_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenant (tenant_id)
);

COMMENT ON COLUMN api_key.secret_hash IS 'HMAC-SHA256 under the pepper';
COMMENT ON COLUMN api_key.last_used_at IS 'coarse: written at most once a minute';

CREATE TABLE batch (
    batch_id BIGINT NOT NULL,
    request_id UUID NOT NULL,
    tenant_id INTEGER NOT NULL,
    model TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    state TEXT DEFAULT 'open' NOT NULL CONSTRAINT batch_state CHECK (state in ('open', 'completed', 'failed')),
    run SMALLINT DEFAULT 1 NOT NULL,
    total INTEGER NOT NULL CONSTRAINT batch_total_positive CHECK (total > 0),
    ok INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    prompt_tokens BIGINT DEFAULT 0 NOT NULL,
    cached_tokens BIGINT DEFAULT 0 NOT NULL,
    completion_tokens BIGINT DEFAULT 0 NOT NULL,
    deadline TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    finalized_at TIMESTAMP WITH TIME ZONE,
    idempotency_key TEXT,
    request_hash BYTEA,
    correlation_id TEXT,
    affinity TEXT,
    tags TEXT[] DEFAULT '{}' NOT NULL,
    meta JSONB,
    CONSTRAINT batch_pkey PRIMARY KEY (batch_id),
    CONSTRAINT batch_tenant_id_idempotency_key_key UNIQUE (tenant_id, idempotency_key),
    CONSTRAINT batch_finalized CHECK ((finalized_at is not null) = (state in ('completed', 'failed'))),
    CONSTRAINT batch_request_id_key UNIQUE (request_id),
    CONSTRAINT batch_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenant (tenant_id)
)
 WITH (fillfactor = 80);

CREATE INDEX batch_open ON batch (created_at) WHERE finalized_at is null;

COMMENT ON COLUMN batch.request_id IS 'the id callers see';
COMMENT ON COLUMN batch.model IS 'the name the caller used';
COMMENT ON COLUMN batch.endpoint IS 'the engine route of its items unless an item has its own';
COMMENT ON COLUMN batch.run IS 'grows when part of it is run again';
COMMENT ON COLUMN batch.affinity IS 'x-session-affinity of the submit';

CREATE TABLE endpoint (
    endpoint_id UUID DEFAULT gen_random_uuid() NOT NULL,
    tenant_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    url TEXT NOT NULL,
    model TEXT,
    kinds TEXT[] NOT NULL,
    format TEXT DEFAULT 'workers_ai' NOT NULL,
    enabled BOOLEAN DEFAULT true NOT NULL,
    disabled_reason TEXT,
    secret BYTEA NOT NULL,
    failing_since TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    modified_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT endpoint_pkey PRIMARY KEY (endpoint_id),
    CONSTRAINT endpoint_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenant (tenant_id)
);

CREATE INDEX endpoint_tenant ON endpoint (tenant_id);

COMMENT ON COLUMN endpoint.model IS 'null: events of all models';
COMMENT ON COLUMN endpoint.secret IS 'encrypted signing secret';

CREATE TABLE engine (
    engine_id BIGINT GENERATED ALWAYS AS IDENTITY,
    name TEXT NOT NULL,
    pool_id SMALLINT NOT NULL,
    url TEXT NOT NULL,
    arrival_url TEXT,
    mode TEXT NOT NULL CONSTRAINT engine_mode CHECK (mode in ('managed', 'attached')),
    state TEXT DEFAULT 'starting' NOT NULL CONSTRAINT engine_state CHECK (state in ('starting', 'ready', 'down')),
    worker_id BIGINT,
    reason TEXT,
    allowance SMALLINT DEFAULT '0' NOT NULL,
    heartbeat_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT engine_pkey PRIMARY KEY (engine_id),
    CONSTRAINT engine_name_key UNIQUE (name),
    CONSTRAINT engine_pool_id_fkey FOREIGN KEY(pool_id) REFERENCES pool (pool_id)
)
 WITH (fillfactor = 50);

COMMENT ON COLUMN engine.arrival_url IS 'where the gateway announces synchronous requests to the worker';
COMMENT ON COLUMN engine.worker_id IS 'holder of the controller lease; valid while that worker''s lease is';
COMMENT ON COLUMN engine.reason IS 'the controller''s last reason code';

CREATE TABLE delivery (
    delivery_id BIGINT GENERATED ALWAYS AS IDENTITY,
    event_id BIGINT NOT NULL,
    endpoint_id UUID NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL CONSTRAINT delivery_state CHECK (state in ('pending', 'sending', 'delivered', 'dead')),
    attempts SMALLINT DEFAULT '0' NOT NULL,
    fence INTEGER DEFAULT '0' NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE,
    hinted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT delivery_pkey PRIMARY KEY (delivery_id),
    CONSTRAINT delivery_event_id_endpoint_id_key UNIQUE (event_id, endpoint_id),
    CONSTRAINT delivery_sending_has_lease CHECK ((state = 'sending') = (lease_until is not null)),
    CONSTRAINT delivery_event_id_fkey FOREIGN KEY(event_id) REFERENCES event (event_id),
    CONSTRAINT delivery_endpoint_id_fkey FOREIGN KEY(endpoint_id) REFERENCES endpoint (endpoint_id) ON DELETE CASCADE
);

CREATE INDEX delivery_due ON delivery (next_attempt_at) WHERE state = 'pending';

CREATE INDEX delivery_endpoint ON delivery (endpoint_id);

CREATE INDEX delivery_leased ON delivery (lease_until) WHERE state = 'sending';

COMMENT ON COLUMN delivery.hinted_at IS 'when the broker was last told';

CREATE TABLE attempt (
    attempt_id BIGINT GENERATED ALWAYS AS IDENTITY,
    delivery_id BIGINT NOT NULL,
    n SMALLINT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    duration_ms INTEGER NOT NULL,
    http_status SMALLINT,
    error_class TEXT,
    response_body BYTEA,
    CONSTRAINT attempt_pkey PRIMARY KEY (attempt_id),
    CONSTRAINT attempt_delivery_id_fkey FOREIGN KEY(delivery_id) REFERENCES delivery (delivery_id) ON DELETE CASCADE
);

CREATE INDEX attempt_delivery ON attempt (delivery_id);

COMMENT ON COLUMN attempt.error_class IS 'dns, connect, tls, timeout, http_4xx, ssrf_blocked, …; null: delivered';
COMMENT ON COLUMN attempt.response_body IS 'the first bytes of the receiver''s answer';

"""


def upgrade() -> None:
    """Create everything."""
    connection = op.get_bind()
    for script in (SCHEMA, BATCH_ID):
        run_script(connection, script)


def downgrade() -> None:
    """The first schema has nothing to go back to."""
    raise RuntimeError("0001 is the first schema; drop the database instead")
