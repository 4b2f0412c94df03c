"""Redaction: the sealed values behind an item's placeholders. The column is added without a rewrite of the table.

Revision ID: 0037
Revises: 0036
"""

from alembic import op

from app.db.migrate import run_script

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE item_payload ADD COLUMN vault BYTEA;
COMMENT ON COLUMN item_payload.vault IS 'sealed values of the placeholders in its body; null: it has none';
COMMENT ON COLUMN item_payload.body IS 'the caller''s item, redacted where the policy says so';
"""
BACK = """
COMMENT ON COLUMN item_payload.body IS 'the caller''s item, verbatim';
ALTER TABLE item_payload DROP COLUMN vault;
"""


def upgrade() -> None:
    """One column."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Values that are sealed are lost; placeholders stay."""
    run_script(op.get_bind(), BACK)
