"""The fair order by an index of turns, and what ended leases have used beside it.

A worker of the version before writes what was used into `sched` itself, and its steward folds nothing: until the floor of the
schema is at this revision, workers of this version write into `sched` as well.

Revision ID: 0042
Revises: 0041
"""

from alembic import op

from app.db.migrate import run_script
from migrations.indexes import Index, build

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

# The column rewrites the table, which has one row for each account of a pool: 10,000 take 0.1 s.
COLUMN = """
ALTER TABLE sched ADD COLUMN IF NOT EXISTS turn DOUBLE PRECISION
  -- squawk-ignore adding-field-with-default
  GENERATED ALWAYS AS (CASE WHEN ready > 0 THEN floor(vtime / 65536) END) STORED;
COMMENT ON COLUMN sched.turn IS
  'virtual time in steps, so that the index of the order seldom changes; null: nothing is ready';
"""
DELTAS = """
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
"""


def upgrade() -> None:
    """A column that older code does not see, its index, and a table."""
    run_script(op.get_bind(), COLUMN)
    build(Index("sched_turn", "sched", "(pool_id, turn) WHERE turn IS NOT NULL"))
    run_script(op.get_bind(), DELTAS)


def downgrade() -> None:
    """What is not folded yet is lost to the order; the next recompute corrects the tokens in flight."""
    run_script(op.get_bind(), "DROP TABLE sched_delta; ALTER TABLE sched DROP COLUMN turn;")
