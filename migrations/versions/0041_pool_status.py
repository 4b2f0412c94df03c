"""What workers and autoscalers need to know of a pool, as the steward last saw it; and which workers wait for work.

Revision ID: 0041
Revises: 0040
"""

from alembic import op

from app.db.migrate import run_script

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

SCRIPT = """
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
ALTER TABLE worker ADD COLUMN hungry BOOLEAN NOT NULL DEFAULT false;
COMMENT ON COLUMN worker.hungry IS 'it waits for work, as it last reported; not indexed, like lease_until';
"""


def upgrade() -> None:
    """A table, and one column with a constant default: no rewrite of a table."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """The steward writes all of it again within a second of the next upgrade."""
    run_script(op.get_bind(), "DROP TABLE pool_status; ALTER TABLE worker DROP COLUMN hungry;")
