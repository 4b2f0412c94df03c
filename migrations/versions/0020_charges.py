"""A chunk knows for whose loss it was charged last, and how often a charge was taken back.

Revision ID: 0020
Revises: 0019
"""

from alembic import op

from app.db.migrate import run_script

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE chunk ADD COLUMN charged_for BIGINT;
ALTER TABLE chunk ADD COLUMN excused SMALLINT;
COMMENT ON COLUMN chunk.charged_for IS 'the worker whose loss was charged last; null: none, or taken back';
COMMENT ON COLUMN chunk.excused IS 'charges that were taken back; null: none, which takes no space in the row';
CREATE INDEX chunk_charged ON chunk (charged_for) WHERE charged_for is not null;
"""

DOWN = """
DROP INDEX chunk_charged;
ALTER TABLE chunk DROP COLUMN excused, DROP COLUMN charged_for;
"""


def upgrade() -> None:
    """Two columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Charges stay as they are."""
    run_script(op.get_bind(), DOWN)
