"""What workers learn of their engines: the name and window that an engine has, what is wrong with it; and the windows that
models promise which no catalogue describes.

Revision ID: 0012
Revises: 0011
"""

from alembic import op

from app.db.migrate import run_script

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE pool ADD COLUMN context_window INTEGER;
ALTER TABLE pool ADD COLUMN task TEXT;
COMMENT ON COLUMN pool.context_window IS 'tokens that its engines promise; null: the catalogue says';
COMMENT ON COLUMN pool.task IS 'of a model whose window stands here';

ALTER TABLE engine ALTER COLUMN pool_id DROP NOT NULL;
COMMENT ON COLUMN engine.pool_id IS 'null: nobody knows yet what it serves';
ALTER TABLE engine ADD COLUMN served_name TEXT;
ALTER TABLE engine ADD COLUMN serves TEXT[] DEFAULT '{}' NOT NULL;
ALTER TABLE engine ADD COLUMN max_model_len INTEGER;
ALTER TABLE engine ADD COLUMN version TEXT;
ALTER TABLE engine ADD COLUMN scheduling_policy TEXT;
ALTER TABLE engine ADD COLUMN protection TEXT DEFAULT 'outside' NOT NULL;
ALTER TABLE engine ADD CONSTRAINT engine_protection CHECK (protection in ('inside', 'outside'));
ALTER TABLE engine ADD COLUMN problems JSONB DEFAULT '[]' NOT NULL;
COMMENT ON COLUMN engine.served_name IS 'what it calls the model; null: as the pool does';
COMMENT ON COLUMN engine.serves IS 'every name that it serves';
COMMENT ON COLUMN engine.max_model_len IS 'its context window in tokens, if it tells';
COMMENT ON COLUMN engine.scheduling_policy IS 'null: it does not tell';
COMMENT ON COLUMN engine.protection IS 'where synchronous requests are protected: in each step of the engine, or by what it is given';
COMMENT ON COLUMN engine.problems IS 'code, message, remedy of each';
"""

DOWN = """
DELETE FROM engine WHERE pool_id IS NULL;
ALTER TABLE engine ALTER COLUMN pool_id SET NOT NULL;
ALTER TABLE engine DROP COLUMN problems, DROP COLUMN protection, DROP COLUMN scheduling_policy, DROP COLUMN version,
  DROP COLUMN max_model_len, DROP COLUMN serves, DROP COLUMN served_name;
ALTER TABLE pool DROP COLUMN task, DROP COLUMN context_window;
"""


def upgrade() -> None:
    """New columns, empty or with a constant default; no row is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Adopted models are unknown until their engines are attached again."""
    run_script(op.get_bind(), DOWN)
