"""The lines of a batch's further models, and of items that a budget moved to another model, so that a retry keeps their prices.

Both columns are null in existing rows, so none is rewritten. A retry of a batch from before takes the newest line of the model.

Revision ID: 0028
Revises: 0027
"""

from alembic import op

from app.db.migrate import run_script

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch ADD COLUMN model_lines INTEGER[];
COMMENT ON COLUMN batch.model_lines IS 'lines of its models, the first one''s first; null: it has one model, of line_id';
ALTER TABLE item_payload ADD COLUMN line_id INTEGER;
COMMENT ON COLUMN item_payload.line_id IS 'line at whose price a budget moved it to its model; null: that of the batch''s model';
"""

DOWN = """
ALTER TABLE item_payload DROP COLUMN line_id;
ALTER TABLE batch DROP COLUMN model_lines;
"""


def upgrade() -> None:
    """Two columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """A retry takes the newest lines again."""
    run_script(op.get_bind(), DOWN)
