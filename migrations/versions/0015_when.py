"""When things will be done: how fast a pool is and how evenly, when an engine is expected back, and what its telemetry lacks.

Revision ID: 0015
Revises: 0011
"""

from alembic import op

from app.db.migrate import run_script

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE engine ADD COLUMN detail TEXT, ADD COLUMN start_seconds DOUBLE PRECISION,
  ADD COLUMN expected_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN engine.detail IS 'what is wrong with its telemetry';
COMMENT ON COLUMN engine.start_seconds IS 'how long it took lately to come back, as its worker learned';
COMMENT ON COLUMN engine.expected_at IS 'when it should answer; null: it does, or nobody knows';

ALTER TABLE decision ADD COLUMN detail TEXT;
COMMENT ON COLUMN decision.detail IS 'what was wrong with the telemetry';

ALTER TABLE pace ADD COLUMN tokens_per_second DOUBLE PRECISION, ADD COLUMN spread DOUBLE PRECISION;
COMMENT ON COLUMN pace.tokens_per_second IS 'of the last minutes with work, as measured then; null: too short a time';
COMMENT ON COLUMN pace.spread IS 'share by which the pace lately missed what came; null: too short a time';
"""

DOWN = """
ALTER TABLE pace DROP COLUMN spread, DROP COLUMN tokens_per_second;
ALTER TABLE decision DROP COLUMN detail;
ALTER TABLE engine DROP COLUMN expected_at, DROP COLUMN start_seconds, DROP COLUMN detail;
"""


def upgrade() -> None:
    """New columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """What was learned of paces and starts is lost."""
    run_script(op.get_bind(), DOWN)
