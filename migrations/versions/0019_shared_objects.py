"""A file's row comes before its object, and one object tells every part whether it looks into the same store.

Revision: 0019
Revises: 0018
"""

from alembic import op

from app.db.migrate import run_script

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE file ADD COLUMN state TEXT DEFAULT 'ready' NOT NULL;
ALTER TABLE file ALTER COLUMN state SET DEFAULT 'pending';
ALTER TABLE file ADD CONSTRAINT file_state CHECK (state in ('pending', 'ready'));
CREATE TABLE object_store (
    single BOOLEAN DEFAULT true NOT NULL,
    marker UUID NOT NULL,
    writer TEXT NOT NULL,
    place TEXT NOT NULL,
    bodies BOOLEAN NOT NULL,
    made_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT object_store_pkey PRIMARY KEY (single),
    CONSTRAINT object_store_one CHECK (single)
);
COMMENT ON COLUMN object_store.marker IS 'the object that every part must find';
COMMENT ON COLUMN object_store.writer IS 'the part that put it there, and its host';
COMMENT ON COLUMN object_store.place IS 'the store as the writer calls it';
COMMENT ON COLUMN object_store.bodies IS 'whether bodies of items may lie there';
"""

DOWN = """
DROP TABLE object_store;
DELETE FROM file WHERE state = 'pending';
ALTER TABLE file DROP COLUMN state;
"""


def upgrade() -> None:
    """New column, new table."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Uploads that are under way are forgotten."""
    run_script(op.get_bind(), DOWN)
