"""Engines of other kinds than vLLM: gateways read how to speak to each.

Revision ID: 0023
Revises: 0022
"""

from alembic import op

from app.db.migrate import run_script

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE engine ADD COLUMN dialect TEXT DEFAULT 'vllm' NOT NULL;
COMMENT ON COLUMN engine.dialect IS 'the kind of engine: which fields a request to it may have (app/engines/dialects.py)';
"""

DOWN = "ALTER TABLE engine DROP COLUMN dialect;"


def upgrade() -> None:
    """One column with a constant default; no row is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Every engine counts as vLLM again."""
    run_script(op.get_bind(), DOWN)
