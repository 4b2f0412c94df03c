"""Objects that are removed from the store some days after their rows.

Revision ID: 0043
Revises: 0042
"""

from alembic import op

from app.db.migrate import run_script

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE object_removal (
  path TEXT NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT object_removal_pkey PRIMARY KEY (path)
);
COMMENT ON COLUMN object_removal.path IS
  'key of an object; with / at its end, what the keys of several begin with';
COMMENT ON COLUMN object_removal.due_at IS 'when the steward removes them from the store';
"""


def upgrade() -> None:
    """One table."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Objects that were to be removed later stay for ever."""
    run_script(op.get_bind(), "DROP TABLE object_removal;")
