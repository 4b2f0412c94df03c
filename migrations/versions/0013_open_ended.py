"""Batches whose answers may take what is left of the context, where their items set no limit: those of OpenAI's routes.

Batches that are there already keep the limit of Workers AI's routes, under which they were taken.

Revision ID: 0013
Revises: 0011
"""

from alembic import op

from app.db.migrate import run_script

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch ADD COLUMN open_ended BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN batch.open_ended IS 'answers without a limit of their own may take what is left of the context';
CREATE INDEX batch_open_ended ON batch (model, batch_id) WHERE open_ended;
COMMENT ON COLUMN file.demand IS
  'what a batch of it asks for, by model: requests, prompt_tokens, answer_tokens, most_tokens';
"""

DOWN = """
DROP INDEX batch_open_ended;
ALTER TABLE batch DROP COLUMN open_ended;
COMMENT ON COLUMN file.demand IS 'what a batch of it asks for, by model: requests, prompt_tokens, answer_tokens';
"""


def upgrade() -> None:
    """One column and its index."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Items without a limit end where the model's default says."""
    run_script(op.get_bind(), DOWN)
