"""Budgets, lanes and slices; chunks and deltas carry what budgets hold for them.

The new columns have no default, so no row is rewritten. Nothing here scans the chunks, whose table stays locked until the end:
0030 validates the constraint and adds the indexes.

Revision ID: 0026
Revises: 0025
"""

from alembic import op

from app.db.migrate import run_script

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

SCRIPT = """
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
  soft SMALLINT[] DEFAULT '{}' NOT NULL,
  divert_at SMALLINT,
  fallback TEXT[] DEFAULT '{}' NOT NULL,
  when_spent TEXT NOT NULL CONSTRAINT budget_when_spent CHECK (when_spent in ('wait', 'refuse')),
  strict BOOLEAN NOT NULL,
  spent BIGINT DEFAULT 0 NOT NULL,
  held BIGINT DEFAULT 0 NOT NULL,
  window_from TIMESTAMP WITH TIME ZONE NOT NULL,
  window_to TIMESTAMP WITH TIME ZONE,
  notified SMALLINT DEFAULT 0 NOT NULL,
  diverted BOOLEAN DEFAULT false NOT NULL,
  changed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT budget_pkey PRIMARY KEY (budget_id),
  CONSTRAINT budget_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
  CONSTRAINT budget_tenant_id_name_key UNIQUE (tenant_id, name)
) WITH (fillfactor = 50);
COMMENT ON COLUMN budget.scope_value IS 'id of the key, or the workflow; empty for an account';
COMMENT ON COLUMN budget.currency IS 'of a budget of cost; null: it is of tokens';
COMMENT ON COLUMN budget.max IS 'of one window: 10^-9 of the currency, or tokens; likewise spent and held';
COMMENT ON COLUMN budget.soft IS 'per cent of max at which an event is written';
COMMENT ON COLUMN budget.divert_at IS 'per cent of max from which work that is not critical moves to a fallback';
COMMENT ON COLUMN budget.fallback IS 'catalogue models, the first that fits is taken';
COMMENT ON COLUMN budget.strict IS 'hold all that a request can cost, and refuse calls while the database is away';
COMMENT ON COLUMN budget.held IS 'for funded chunks that are not settled, and in slices';
COMMENT ON COLUMN budget.window_to IS 'null: never';
COMMENT ON COLUMN budget.notified IS 'per cent up to which events were written in this window';
COMMENT ON COLUMN budget.diverted IS 'whether work was diverted in this window';
CREATE TABLE lane (
  lane_id INTEGER GENERATED ALWAYS AS IDENTITY,
  tenant_id INTEGER NOT NULL,
  budget_ids INTEGER[] NOT NULL,
  cost DOUBLE PRECISION DEFAULT 0 NOT NULL,
  worst DOUBLE PRECISION DEFAULT 0 NOT NULL,
  tokens DOUBLE PRECISION DEFAULT 0 NOT NULL,
  worst_tokens DOUBLE PRECISION DEFAULT 0 NOT NULL,
  learned_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT lane_pkey PRIMARY KEY (lane_id),
  CONSTRAINT lane_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
  CONSTRAINT lane_tenant_id_budget_ids_key UNIQUE (tenant_id, budget_ids)
);
COMMENT ON COLUMN lane.budget_ids IS 'the budgets that apply, in ascending order';
COMMENT ON COLUMN lane.cost IS 'of its settled results; these four sums fade with a mean life of a day';
COMMENT ON COLUMN lane.worst IS 'the most that these results could have cost';
CREATE TABLE budget_slice (
  budget_id INTEGER NOT NULL,
  writer TEXT NOT NULL,
  amount BIGINT NOT NULL,
  number BIGINT NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT budget_slice_pkey PRIMARY KEY (budget_id, writer),
  CONSTRAINT budget_slice_budget_id_fkey FOREIGN KEY (budget_id) REFERENCES budget (budget_id) ON DELETE CASCADE
);
COMMENT ON COLUMN budget_slice.writer IS 'a process that answers synchronous requests';
COMMENT ON COLUMN budget_slice.amount IS 'what it may spend; part of the held amount of the budget';
COMMENT ON COLUMN budget_slice.number IS 'of the report that it wrote last';
ALTER TABLE chunk ADD COLUMN lane INTEGER, ADD COLUMN worst BIGINT, ADD COLUMN worst_tokens BIGINT,
  ADD COLUMN likely SMALLINT, ADD COLUMN held SMALLINT,
  DROP CONSTRAINT chunk_state,
  ADD CONSTRAINT chunk_state CHECK (state in ('unfunded', 'ready', 'leased', 'delayed', 'held')) NOT VALID;
ALTER TABLE batch_delta ADD COLUMN lane INTEGER, ADD COLUMN held_cost BIGINT, ADD COLUMN held_tokens BIGINT,
  ADD COLUMN worst BIGINT, ADD COLUMN worst_tokens BIGINT;
COMMENT ON COLUMN chunk.lane IS 'lane of its budgets; null: it has none';
COMMENT ON COLUMN chunk.worst IS 'the most that it can cost, in 10^-9 of the currency; null: it has no lane';
COMMENT ON COLUMN chunk.worst_tokens IS 'the most tokens that it can use';
COMMENT ON COLUMN chunk.likely IS 'per mille of the worst that a hold takes at most; null: all of it';
COMMENT ON COLUMN chunk.held IS 'per mille of the worst that its budgets hold for it; null: nothing';
COMMENT ON COLUMN batch_delta.lane IS 'lane of the chunk; null: it had none';
COMMENT ON COLUMN batch_delta.held_cost IS 'what its budgets held for it, which is returned';
COMMENT ON COLUMN batch_delta.worst IS 'the most that the results could have cost';
"""

DOWN = """
UPDATE sched s SET ready = s.ready + x.n FROM (SELECT pool_id, tenant_id, count(*) AS n FROM chunk WHERE state = 'unfunded'
  GROUP BY 1, 2) x WHERE s.pool_id = x.pool_id AND s.tenant_id = x.tenant_id;
UPDATE chunk SET state = 'ready' WHERE state = 'unfunded';
ALTER TABLE batch_delta DROP COLUMN lane, DROP COLUMN held_cost, DROP COLUMN held_tokens, DROP COLUMN worst,
  DROP COLUMN worst_tokens;
ALTER TABLE chunk DROP CONSTRAINT chunk_state, DROP COLUMN lane, DROP COLUMN worst, DROP COLUMN worst_tokens, DROP COLUMN likely,
  DROP COLUMN held, ADD CONSTRAINT chunk_state CHECK (state in ('ready', 'leased', 'delayed', 'held'));
DROP TABLE budget_slice;
DROP TABLE lane;
DROP TABLE budget;
"""


def upgrade() -> None:
    """Three tables and columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Budgets are lost, and what waits for money is ready."""
    run_script(op.get_bind(), DOWN)
