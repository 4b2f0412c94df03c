-- Webhooks: events, the endpoints that want them, a delivery for each event and endpoint, and its HTTP requests.
--
-- The rows are the truth. A message of the broker is only a hint that a delivery may be due.

-- Something that subscribers are told.
CREATE TABLE event (
  event_id BIGINT GENERATED ALWAYS AS IDENTITY,
  message_id UUID DEFAULT gen_random_uuid() NOT NULL,
  tenant_id INTEGER NOT NULL,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  batch_id BIGINT,
  run SMALLINT,
  data BYTEA NOT NULL,
  occurred_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  n INTEGER DEFAULT 0 NOT NULL,
  CONSTRAINT event_pkey PRIMARY KEY (event_id),
  CONSTRAINT event_batch_id_run_kind_n_key UNIQUE (batch_id, run, kind, n)
);
CREATE INDEX event_tenant ON event (tenant_id, event_id);
COMMENT ON COLUMN event.message_id IS 'the webhook-id';
COMMENT ON COLUMN event.kind IS 'batch.queued, batch.succeeded, …';
COMMENT ON COLUMN event.data IS 'JSON; each endpoint''s format is made from it';
COMMENT ON COLUMN event.n IS 'its number among the events of the same batch, run and kind';

-- A receiver of webhooks.
CREATE TABLE endpoint (
  endpoint_id UUID DEFAULT gen_random_uuid() NOT NULL,
  tenant_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  url TEXT,
  queue_id TEXT,
  model TEXT,
  kinds TEXT[] NOT NULL,
  format TEXT DEFAULT 'workers_ai' NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL
    CONSTRAINT endpoint_state CHECK (state in ('pending', 'active', 'paused', 'disabled', 'closing')),
  reason TEXT,
  secret BYTEA,
  failing_since TIMESTAMP WITH TIME ZONE,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  modified_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  previous_secret BYTEA,
  previous_until TIMESTAMP WITH TIME ZONE,
  signing_key BYTEA,
  previous_signing_key BYTEA,
  tags TEXT[] DEFAULT '{}' NOT NULL,
  metadata JSONB DEFAULT '{}' NOT NULL,
  ordered BOOLEAN DEFAULT false NOT NULL,
  max_in_flight SMALLINT DEFAULT 8 NOT NULL CONSTRAINT endpoint_in_flight_positive CHECK (max_in_flight > 0),
  max_per_second DOUBLE PRECISION CONSTRAINT endpoint_rate_positive CHECK (max_per_second > 0),
  paced_until TIMESTAMP WITH TIME ZONE,
  failures INTEGER DEFAULT 0 NOT NULL,
  open_until TIMESTAMP WITH TIME ZONE,
  warned SMALLINT DEFAULT 0 NOT NULL,
  hinted_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT endpoint_pkey PRIMARY KEY (endpoint_id),
  CONSTRAINT endpoint_sent_or_fetched CHECK ((url is null) <> (queue_id is null) and (url is null) = (secret is null)),
  CONSTRAINT endpoint_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
CREATE INDEX endpoint_closing ON endpoint (endpoint_id) WHERE state = 'closing';
CREATE INDEX endpoint_tenant ON endpoint (tenant_id);
COMMENT ON COLUMN endpoint.url IS 'where its events are sent; null: they are fetched';
COMMENT ON COLUMN endpoint.queue_id IS 'the queue from which its events are fetched; null: they are sent';
COMMENT ON COLUMN endpoint.model IS 'null: events of all models';
COMMENT ON COLUMN endpoint.reason IS 'why it is disabled';
COMMENT ON COLUMN endpoint.secret IS 'encrypted signing secret; null: its events are fetched';
COMMENT ON COLUMN endpoint.previous_secret IS 'the secret before a rotation, which also signs until previous_until';
COMMENT ON COLUMN endpoint.signing_key IS 'sealed ed25519 key, for v1a signatures';
COMMENT ON COLUMN endpoint.previous_signing_key IS 'that before a rotation, which also signs until previous_until';
COMMENT ON COLUMN endpoint.tags IS 'only events of batches that have all of them';
COMMENT ON COLUMN endpoint.metadata IS 'only events of batches whose metadata has all of it';
COMMENT ON COLUMN endpoint.ordered IS 'an event of a batch is sent after the deliveries of its earlier events have ended';
COMMENT ON COLUMN endpoint.paced_until IS 'until then, the deliveries that were sent use up max_per_second';
COMMENT ON COLUMN endpoint.failures IS 'failed attempts in a row';
COMMENT ON COLUMN endpoint.open_until IS 'circuit breaker: nothing is sent before then, and afterwards one delivery at a time';
COMMENT ON COLUMN endpoint.warned IS 'how many warning steps it has reached since it began to fail';
COMMENT ON COLUMN endpoint.hinted_at IS 'when a hint for its due deliveries was last published; null: none is expected';

-- One event for one endpoint.
CREATE TABLE delivery (
  delivery_id BIGINT GENERATED ALWAYS AS IDENTITY,
  event_id BIGINT NOT NULL,
  endpoint_id UUID NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL
    CONSTRAINT delivery_state CHECK (state in ('pending', 'held', 'sending', 'delivered', 'dead')),
  attempts SMALLINT DEFAULT 0 NOT NULL,
  fence INTEGER DEFAULT 0 NOT NULL,
  next_attempt_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  lease_until TIMESTAMP WITH TIME ZONE,
  attempts_before SMALLINT DEFAULT 0 NOT NULL,
  batch_id BIGINT,
  probe BOOLEAN DEFAULT false NOT NULL,
  claimed_at TIMESTAMP WITH TIME ZONE,
  reason TEXT,
  CONSTRAINT delivery_pkey PRIMARY KEY (delivery_id),
  CONSTRAINT delivery_event_id_endpoint_id_key UNIQUE (event_id, endpoint_id),
  CONSTRAINT delivery_sending_has_lease CHECK ((state = 'sending') = (lease_until is not null)),
  CONSTRAINT delivery_event_id_fkey FOREIGN KEY (event_id) REFERENCES event (event_id),
  CONSTRAINT delivery_endpoint_id_fkey FOREIGN KEY (endpoint_id) REFERENCES endpoint (endpoint_id) ON DELETE CASCADE
);
CREATE INDEX delivery_dead ON delivery (endpoint_id) WHERE state = 'dead';
CREATE INDEX delivery_due ON delivery (next_attempt_at) WHERE state = 'pending';
CREATE INDEX delivery_endpoint ON delivery (endpoint_id, delivery_id);
CREATE INDEX delivery_held ON delivery (endpoint_id) WHERE state = 'held';
CREATE INDEX delivery_leased ON delivery (lease_until) WHERE state = 'sending';
CREATE INDEX delivery_next ON delivery (endpoint_id, probe DESC, next_attempt_at, delivery_id) WHERE state = 'pending';
CREATE INDEX delivery_open ON delivery (endpoint_id, batch_id, delivery_id) WHERE state in ('pending', 'held', 'sending');
CREATE INDEX delivery_sending ON delivery (endpoint_id) WHERE state = 'sending';
COMMENT ON COLUMN delivery.next_attempt_at IS 'infinity: the event is fetched, not sent';
COMMENT ON COLUMN delivery.attempts_before IS 'attempts before it was last sent again by hand';
COMMENT ON COLUMN delivery.probe IS 'a test event; it is also sent to endpoints that are not active';
COMMENT ON COLUMN delivery.claimed_at IS 'when its latest attempt began';
COMMENT ON COLUMN delivery.reason IS 'why it is dead';

-- One HTTP request of a delivery.
CREATE TABLE attempt (
  attempt_id BIGINT GENERATED ALWAYS AS IDENTITY,
  delivery_id BIGINT NOT NULL,
  n SMALLINT NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE NOT NULL,
  duration_ms INTEGER NOT NULL,
  http_status SMALLINT,
  error_class TEXT,
  response_body BYTEA,
  address TEXT,
  CONSTRAINT attempt_pkey PRIMARY KEY (attempt_id),
  CONSTRAINT attempt_delivery_id_fkey FOREIGN KEY (delivery_id) REFERENCES delivery (delivery_id) ON DELETE CASCADE
);
CREATE INDEX attempt_delivery ON attempt (delivery_id);
ALTER TABLE attempt ALTER response_body SET STATISTICS 0;
COMMENT ON COLUMN attempt.error_class IS 'dns, connect, tls, timeout, http_4xx, ssrf_blocked, sender_lost, …; null: delivered';
COMMENT ON COLUMN attempt.response_body IS 'the first bytes of the receiver''s answer';
COMMENT ON COLUMN attempt.address IS 'the IP address that answered';
