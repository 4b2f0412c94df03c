"""Data keys that seal only the values behind placeholders, of batches whose bodies are in the clear.

Revision ID: 0039
Revises: 0037
"""

from alembic import op

from app.db.migrate import run_script

revision = "0039"
down_revision = "0037"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch_key ADD COLUMN only_vaults BOOLEAN NOT NULL DEFAULT false;
COMMENT ON COLUMN batch_key.only_vaults IS
  'it seals only the values behind placeholders; the bodies are in the clear';
"""


def upgrade() -> None:
    """One column with a constant default: no rewrite of the table."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Results of such batches that are not stored yet are then sealed, which every reader opens."""
    run_script(op.get_bind(), "ALTER TABLE batch_key DROP COLUMN only_vaults;")
