"""A chunk without a charge that was taken back stores no count of them: a zero made every row of `chunk` eight bytes longer.

Revision ID: 0022
Revises: 0021
"""

from alembic import op

from app.db.migrate import run_script

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE chunk ALTER COLUMN excused DROP NOT NULL, ALTER COLUMN excused DROP DEFAULT;
COMMENT ON COLUMN chunk.excused IS 'charges that were taken back; null: none, which takes no space in the row';
"""

DOWN = """
UPDATE chunk SET excused = 0 WHERE excused IS NULL;
ALTER TABLE chunk ALTER COLUMN excused SET DEFAULT 0, ALTER COLUMN excused SET NOT NULL;
COMMENT ON COLUMN chunk.excused IS 'charges that were taken back';
"""


def upgrade() -> None:
    """The column may be null. Chunks from before keep their zero until they are done."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Every chunk stores a number again."""
    run_script(op.get_bind(), DOWN)
