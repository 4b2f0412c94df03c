"""The floor of the schema: which code is too old for this database.

Revision ID: 0040
Revises: 0039
"""

from alembic import op

from app.db.migrate import run_script

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE schema_floor (
  one BOOLEAN NOT NULL CONSTRAINT schema_floor_one CHECK (one),
  revision TEXT NOT NULL,
  CONSTRAINT schema_floor_pkey PRIMARY KEY (one)
);
COMMENT ON COLUMN schema_floor.one IS 'always true: one row';
COMMENT ON COLUMN schema_floor.revision IS 'the oldest revision whose code may use this database';
INSERT INTO schema_floor (one, revision) VALUES (true, '0040');
"""


def upgrade() -> None:
    """A table with one row."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Code from before the floor does not look at it."""
    run_script(op.get_bind(), "DROP TABLE schema_floor;")
