"""Accounts that can be deleted: their state, and ids that are never used again.

Revision ID: 0016
Revises: 0011
"""

from alembic import op

from app.db.migrate import run_script

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE tenant ADD COLUMN state TEXT DEFAULT 'active' NOT NULL;
ALTER TABLE tenant ADD CONSTRAINT tenant_state CHECK (state in ('active', 'closing'));
COMMENT ON COLUMN tenant.tenant_id IS 'never used again';
SELECT setval(pg_get_serial_sequence('tenant', 'tenant_id'), coalesce(max(tenant_id), 0) + 1, false) FROM tenant;
"""


DOWN = """
ALTER TABLE tenant DROP COLUMN state;
COMMENT ON COLUMN tenant.tenant_id IS NULL;
"""


def upgrade() -> None:
    """A state; and ids come from the sequence that was there unused."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """An account that is being deleted is an ordinary one without keys again."""
    run_script(op.get_bind(), DOWN)
