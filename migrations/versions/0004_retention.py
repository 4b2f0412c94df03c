"""How long a tenant's batches are kept at least; bodies that lie in the object store.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

from app.db.migrate import run_script

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE tenant
    ADD COLUMN retention_days INTEGER CONSTRAINT tenant_retention_positive CHECK (retention_days > 0);
COMMENT ON COLUMN tenant.retention_days IS 'its batches are kept at least this long; null: as the settings say';

ALTER TABLE item_payload ADD COLUMN stored BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN item_payload.stored IS 'body is the key of the object that holds it';
ALTER TABLE item_result ADD COLUMN stored BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN item_result.stored IS 'body is the key of the object that holds it';
"""


def upgrade() -> None:
    """New columns with constant defaults; no row is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Possible only while no body lies in the object store."""
    run_script(
        op.get_bind(),
        """
ALTER TABLE item_result DROP COLUMN stored;
ALTER TABLE item_payload DROP COLUMN stored;
ALTER TABLE tenant DROP COLUMN retention_days;
""",
    )
