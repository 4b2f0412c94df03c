"""What usage reports need: sketches of latencies, engine time, days, sessions, and the endpoint of a line.

The new columns have constant defaults, so no row is rewritten.

Revision ID: 0025
Revises: 0024
"""

from alembic import op

from app.db.migrate import run_script

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

COMMENTS = """
COMMENT ON COLUMN {table}.engine_ms IS 'milliseconds of an engine that queued requests had';
COMMENT ON COLUMN {table}.first_token IS
  'times to the first token: counts of the buckets of app.metering.sketch; null: none was measured';
COMMENT ON COLUMN {table}.duration IS 'the same of whole answers';
"""

SCRIPT = f"""
ALTER TABLE line ADD COLUMN endpoint TEXT DEFAULT '-' NOT NULL;
ALTER TABLE line DROP CONSTRAINT line_parts;
ALTER TABLE line ADD CONSTRAINT line_parts UNIQUE NULLS NOT DISTINCT (tenant_id, key_id, workflow, task, critical, variant,
  family, model, kind, endpoint, price_in, price_cached, price_out, currency);
COMMENT ON COLUMN line.kind IS 'sync, door, or the kind of a batch';
COMMENT ON COLUMN line.endpoint IS 'the engine''s route; -: not known; mixed: several in one chunk';
ALTER TABLE usage ADD COLUMN engine_ms BIGINT DEFAULT 0 NOT NULL, ADD COLUMN first_token INTEGER[],
  ADD COLUMN duration INTEGER[];
{COMMENTS.format(table="usage")}
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
{COMMENTS.format(table="usage_day")}
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
ALTER TABLE batch_delta ADD COLUMN engine_ms BIGINT DEFAULT 0 NOT NULL, ADD COLUMN first_tokens BYTEA DEFAULT '' NOT NULL,
  ADD COLUMN durations BYTEA DEFAULT '' NOT NULL;
COMMENT ON COLUMN batch_delta.engine_ms IS 'milliseconds of an engine that the items had';
COMMENT ON COLUMN batch_delta.first_tokens IS
  'a byte for each answer whose time to the first token is known: its bucket in app.metering.sketch';
COMMENT ON COLUMN batch_delta.durations IS 'the same of whole answers';
"""

DOWN = """
ALTER TABLE batch_delta DROP COLUMN engine_ms, DROP COLUMN first_tokens, DROP COLUMN durations;
DROP TABLE session_growth;
DROP TABLE dropped_usage;
DROP TABLE usage_day;
ALTER TABLE usage DROP COLUMN engine_ms, DROP COLUMN first_token, DROP COLUMN duration;
ALTER TABLE line DROP CONSTRAINT line_parts;
UPDATE line l SET family = l.family || '.' || l.line_id FROM line o
  WHERE o.line_id < l.line_id AND (o.tenant_id, o.key_id, o.workflow, o.task, o.critical, o.variant, o.family, o.model, o.kind)
      = (l.tenant_id, l.key_id, l.workflow, l.task, l.critical, l.variant, l.family, l.model, l.kind)
    AND (o.price_in, o.price_cached, o.price_out, o.currency) IS NOT DISTINCT FROM
        (l.price_in, l.price_cached, l.price_out, l.currency);
ALTER TABLE line DROP COLUMN endpoint;
ALTER TABLE line ADD CONSTRAINT line_parts UNIQUE NULLS NOT DISTINCT (tenant_id, key_id, workflow, task, critical, variant,
  family, model, kind, price_in, price_cached, price_out, currency);
"""


def upgrade() -> None:
    """Columns and three tables."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Latencies, engine time, days older than 35 and sessions are lost. Lines that differ only in their endpoint get other families."""
    run_script(op.get_bind(), DOWN)
