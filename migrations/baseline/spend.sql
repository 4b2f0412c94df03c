-- Spend: the ledger of usage by line and hour, what was learned from it, and budgets.
--
-- Budgets are read and written in the order of budget_id, after usage and before chunks.

-- The account, key, labels, model, kind, endpoint and price of requests, whose usage is added up.
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
  endpoint TEXT DEFAULT '-' NOT NULL,
  price_in BIGINT,
  price_cached BIGINT,
  price_out BIGINT,
  currency TEXT,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  unused_since TIMESTAMP WITH TIME ZONE,
  CONSTRAINT line_pkey PRIMARY KEY (line_id),
  CONSTRAINT line_parts UNIQUE NULLS NOT DISTINCT (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint, price_in, price_cached, price_out, currency),
  CONSTRAINT line_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
COMMENT ON COLUMN line.key_id IS 'empty: not known';
COMMENT ON COLUMN line.model IS 'catalogue name of the model that answers';
COMMENT ON COLUMN line.kind IS 'sync, door, or the kind of a batch';
COMMENT ON COLUMN line.endpoint IS 'the engine''s route; -: not known; mixed: several in one chunk';
COMMENT ON COLUMN line.price_in IS '10^-12 of the currency per prompt token; null: the model has no price';
COMMENT ON COLUMN line.price_cached IS 'the same, per prompt token from the prefix cache';
COMMENT ON COLUMN line.price_out IS 'the same, per token of the answer';
COMMENT ON COLUMN line.unused_since IS 'when nothing used it and nobody had looked it up since; null: it is used';

-- How far the sums of a process are booked, so that none is booked twice.
CREATE TABLE usage_writer (
  writer TEXT NOT NULL,
  number BIGINT NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT usage_writer_pkey PRIMARY KEY (writer)
);
COMMENT ON COLUMN usage_writer.writer IS 'a process that books synchronous usage';
COMMENT ON COLUMN usage_writer.number IS 'of the group of sums that it booked last';

-- The usage of a line in an hour.
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
  engine_ms BIGINT DEFAULT 0 NOT NULL,
  first_token INTEGER[],
  duration INTEGER[],
  CONSTRAINT usage_pkey PRIMARY KEY (hour, line_id),
  CONSTRAINT usage_line_id_fkey FOREIGN KEY (line_id) REFERENCES line (line_id)
);
COMMENT ON COLUMN usage.hour IS 'the hour (UTC) in which the requests ended';
COMMENT ON COLUMN usage.prompt IS 'tokens, cached ones included';
COMMENT ON COLUMN usage.cached IS 'of these, from the prefix cache';
COMMENT ON COLUMN usage.repeats IS 'of a batch''s second or later run';
COMMENT ON COLUMN usage.retried IS 'that took more than one attempt';
COMMENT ON COLUMN usage.engine_ms IS 'milliseconds of an engine that queued requests had';
COMMENT ON COLUMN usage.first_token IS 'times to the first token: counts of the buckets of app.metering.sketch; null: none was measured';
COMMENT ON COLUMN usage.duration IS 'the same of whole answers';

-- The same by day, in which older hours are added up.
CREATE TABLE usage_day (
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
  engine_ms BIGINT DEFAULT 0 NOT NULL,
  first_token INTEGER[],
  duration INTEGER[],
  CONSTRAINT usage_day_pkey PRIMARY KEY (hour, line_id),
  CONSTRAINT usage_day_line_id_fkey FOREIGN KEY (line_id) REFERENCES line (line_id)
);
COMMENT ON COLUMN usage_day.hour IS 'the first hour of the day (UTC)';
COMMENT ON COLUMN usage_day.prompt IS 'tokens, cached ones included';
COMMENT ON COLUMN usage_day.cached IS 'of these, from the prefix cache';
COMMENT ON COLUMN usage_day.repeats IS 'of a batch''s second or later run';
COMMENT ON COLUMN usage_day.retried IS 'that took more than one attempt';
COMMENT ON COLUMN usage_day.engine_ms IS 'milliseconds of an engine that queued requests had';
COMMENT ON COLUMN usage_day.first_token IS 'times to the first token: counts of the buckets of app.metering.sketch; null: none was measured';
COMMENT ON COLUMN usage_day.duration IS 'the same of whole answers';

-- What queued work had used in the days that were dropped. With it the ledger can be compared with the queue.
CREATE TABLE dropped_usage (
  tenant_id INTEGER NOT NULL,
  ok BIGINT DEFAULT 0 NOT NULL,
  failed BIGINT DEFAULT 0 NOT NULL,
  prompt BIGINT DEFAULT 0 NOT NULL,
  cached BIGINT DEFAULT 0 NOT NULL,
  output BIGINT DEFAULT 0 NOT NULL,
  CONSTRAINT dropped_usage_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT dropped_usage_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);

-- How the prompts of a caller's session grow.
CREATE TABLE session_growth (
  tenant_id INTEGER NOT NULL,
  session BYTEA NOT NULL,
  workflow TEXT NOT NULL,
  variant TEXT NOT NULL,
  model TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  turns BIGINT DEFAULT 0 NOT NULL,
  prompts INTEGER[] NOT NULL,
  fresh INTEGER[] NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT session_growth_pkey PRIMARY KEY (tenant_id, session),
  CONSTRAINT session_growth_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
CREATE INDEX session_growth_seen ON session_growth (seen_at);
COMMENT ON COLUMN session_growth.session IS 'a keyed hash of the caller''s name of the session';
COMMENT ON COLUMN session_growth.workflow IS 'of the last request, as the variant';
COMMENT ON COLUMN session_growth.prompts IS 'prompt tokens of the last ten requests, the latest last';
COMMENT ON COLUMN session_growth.fresh IS 'of these, computed anew';

-- Latencies of synchronous answers in a minute, as sketches.
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

-- When the ledger was compared with the queue, and by how much they differed.
CREATE TABLE ledger_check (
  one BOOLEAN NOT NULL CONSTRAINT ledger_check_one CHECK (one),
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  drift BIGINT NOT NULL,
  labels JSONB DEFAULT '{}' NOT NULL,
  CONSTRAINT ledger_check_pkey PRIMARY KEY (one)
);
COMMENT ON COLUMN ledger_check.one IS 'always true: one row';
COMMENT ON COLUMN ledger_check.at IS 'when the ledger was compared with the queue';
COMMENT ON COLUMN ledger_check.drift IS 'sum of all differences, without their signs; should be 0';
COMMENT ON COLUMN ledger_check.labels IS 'share of its labels that an account has used, from one half on, by its name and that of the label';

-- A budget and its current window.
CREATE TABLE budget (
  budget_id INTEGER GENERATED ALWAYS AS IDENTITY,
  tenant_id INTEGER NOT NULL,
  name TEXT NOT NULL,
  scope TEXT NOT NULL CONSTRAINT budget_scope CHECK (scope in ('account', 'key', 'workflow')),
  scope_value TEXT NOT NULL,
  unit TEXT NOT NULL CONSTRAINT budget_unit CHECK (unit in ('cost', 'tokens')),
  currency TEXT,
  period TEXT NOT NULL CONSTRAINT budget_period CHECK (period in ('hour', 'day', 'week', 'month', 'total')),
  tz TEXT NOT NULL,
  max BIGINT NOT NULL CONSTRAINT budget_max_positive CHECK (max > 0),
  alerts_at SMALLINT[] DEFAULT '{}' NOT NULL,
  queued TEXT NOT NULL CONSTRAINT budget_queued CHECK (queued in ('alert', 'wait', 'refuse')),
  synchronous TEXT NOT NULL CONSTRAINT budget_synchronous CHECK (synchronous in ('alert', 'refuse')),
  reserve TEXT NOT NULL CONSTRAINT budget_reserve CHECK (reserve in ('expected', 'maximum')),
  spent BIGINT DEFAULT 0 NOT NULL,
  reserved BIGINT DEFAULT 0 NOT NULL,
  window_from TIMESTAMP WITH TIME ZONE NOT NULL,
  window_to TIMESTAMP WITH TIME ZONE,
  notified SMALLINT DEFAULT 0 NOT NULL,
  changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  diverted_to TEXT[] DEFAULT '{}' NOT NULL,
  spent_in TIMESTAMP WITH TIME ZONE,
  learned_used DOUBLE PRECISION DEFAULT 0 NOT NULL,
  learned_maximum DOUBLE PRECISION DEFAULT 0 NOT NULL,
  learned_tokens DOUBLE PRECISION DEFAULT 0 NOT NULL,
  learned_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  owner TEXT NOT NULL CONSTRAINT budget_owner CHECK (owner in ('operator', 'account')),
  CONSTRAINT budget_pkey PRIMARY KEY (budget_id),
  CONSTRAINT budget_tenant_id_name_key UNIQUE (tenant_id, name),
  CONSTRAINT budget_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
) WITH (fillfactor = 50);
COMMENT ON COLUMN budget.scope_value IS 'id of the key, or the workflow; empty for an account';
COMMENT ON COLUMN budget.currency IS 'of a budget of cost; null: it is of tokens';
COMMENT ON COLUMN budget.max IS 'of one window: 10^-9 of the currency, or tokens; likewise spent and reserved';
COMMENT ON COLUMN budget.alerts_at IS 'per cent of max at which an event is written';
COMMENT ON COLUMN budget.queued IS 'what queued work does at the limit';
COMMENT ON COLUMN budget.synchronous IS 'what synchronous requests do at the limit';
COMMENT ON COLUMN budget.reserve IS 'maximum: all that a request can cost, and calls are refused while the database is away';
COMMENT ON COLUMN budget.reserved IS 'for chunks that are not settled, begun or not, and by processes for synchronous requests';
COMMENT ON COLUMN budget.window_to IS 'null: never';
COMMENT ON COLUMN budget.notified IS 'per cent up to which alerts were written in this window';
COMMENT ON COLUMN budget.diverted_to IS 'models to which work was diverted in this window, each with an event';
COMMENT ON COLUMN budget.spent_in IS 'begin of the window in which the event that its money has ended was written';
COMMENT ON COLUMN budget.learned_used IS 'by settled queued results; these three sums fade with a mean life of a day';
COMMENT ON COLUMN budget.learned_maximum IS 'the most that these results could have used';
COMMENT ON COLUMN budget.learned_tokens IS 'the same in tokens';
COMMENT ON COLUMN budget.owner IS 'who has set it: the account changes only its own';

-- The part of a budget that one API process may spend on synchronous requests.
CREATE TABLE reservation (
  budget_id INTEGER NOT NULL,
  writer TEXT NOT NULL,
  amount BIGINT NOT NULL,
  number BIGINT NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  beyond BIGINT DEFAULT 0 NOT NULL,
  CONSTRAINT reservation_pkey PRIMARY KEY (budget_id, writer),
  CONSTRAINT reservation_budget_id_fkey FOREIGN KEY (budget_id) REFERENCES budget (budget_id) ON DELETE CASCADE
);
COMMENT ON COLUMN reservation.writer IS 'a process that answers synchronous requests';
COMMENT ON COLUMN reservation.amount IS 'what it may spend; a part of what is reserved of the budget';
COMMENT ON COLUMN reservation.number IS 'of the report that it wrote last';
COMMENT ON COLUMN reservation.beyond IS 'what the requests in an engine can cost beyond what is reserved for them, at the last report';

-- How long answers without a limit are, for the estimates of new items.
CREATE TABLE answer_length (
  tenant_id INTEGER NOT NULL,
  workflow TEXT NOT NULL,
  task TEXT NOT NULL,
  model TEXT NOT NULL,
  p95 INTEGER NOT NULL,
  answers INTEGER NOT NULL,
  learned_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT answer_length_pkey PRIMARY KEY (tenant_id, workflow, task, model),
  CONSTRAINT answer_length_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
COMMENT ON COLUMN answer_length.p95 IS 'tokens that 95 of 100 recent answers without a limit do not exceed';
COMMENT ON COLUMN answer_length.answers IS 'of which it was learned';
