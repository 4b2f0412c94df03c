"""A batch of a file remembers all the terms in which it was asked for.

Revision ID: 0021
Revises: 0020
"""

from alembic import op

from app.db.migrate import run_script

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE file_batch ADD COLUMN terms BYTEA;
COMMENT ON COLUMN file_batch.terms IS 'hash of all that was asked for beside the file; null: came by another way, or before this column';
"""

DOWN = "ALTER TABLE file_batch DROP COLUMN terms;"


def upgrade() -> None:
    """One column."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Batches forget it."""
    run_script(op.get_bind(), DOWN)
