"""An engine can be drained: whether it takes new work, since when, and what is in flight on it.

Revision ID: 0017
Revises: 0016
"""

from alembic import op

from app.db.migrate import run_script

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE engine ADD COLUMN intake TEXT DEFAULT 'open' NOT NULL;
ALTER TABLE engine ADD CONSTRAINT engine_intake CHECK (intake in ('open', 'draining', 'returning'));
ALTER TABLE engine ADD COLUMN intake_since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL;
ALTER TABLE engine ADD COLUMN batch_in_flight INTEGER DEFAULT 0 NOT NULL;
ALTER TABLE engine ADD COLUMN sync_in_flight INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN engine.intake IS 'whether it takes new work: the operator''s word, which outlives its worker';
COMMENT ON COLUMN engine.batch_in_flight IS 'as its worker last reported';
COMMENT ON COLUMN engine.sync_in_flight IS 'those that a gateway announced';
"""

DOWN = """
ALTER TABLE engine DROP COLUMN sync_in_flight, DROP COLUMN batch_in_flight, DROP COLUMN intake_since, DROP COLUMN intake;
"""


def upgrade() -> None:
    """New columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Drained engines take work again."""
    run_script(op.get_bind(), DOWN)
