"""A deleted endpoint goes in steps; when a worker last renewed its lease; when a delivery was taken, why it is dead.

Revision ID: 0018
Revises: 0017
"""

from alembic import op

from app.db.migrate import run_script

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE endpoint DROP CONSTRAINT endpoint_state;
ALTER TABLE endpoint ADD CONSTRAINT endpoint_state CHECK (state in ('pending', 'active', 'paused', 'disabled', 'closing'));
CREATE INDEX endpoint_closing ON endpoint (endpoint_id) WHERE state = 'closing';
ALTER TABLE worker ADD COLUMN renewed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL;
COMMENT ON COLUMN worker.renewed_at IS 'when the lease was last renewed; not indexed, as lease_until';
ALTER TABLE delivery ADD COLUMN claimed_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN delivery.claimed_at IS 'when its latest attempt began';
COMMENT ON COLUMN attempt.error_class IS
    'dns, connect, tls, timeout, http_4xx, ssrf_blocked, sender_lost, …; null: delivered';
ALTER TABLE delivery ADD COLUMN reason TEXT;
COMMENT ON COLUMN delivery.reason IS 'why it is dead';
"""

DOWN = """
COMMENT ON COLUMN attempt.error_class IS 'dns, connect, tls, timeout, http_4xx, ssrf_blocked, …; null: delivered';
ALTER TABLE delivery DROP COLUMN reason, DROP COLUMN claimed_at;
ALTER TABLE worker DROP COLUMN renewed_at;
DROP INDEX endpoint_closing;
DELETE FROM endpoint WHERE state = 'closing';
ALTER TABLE endpoint DROP CONSTRAINT endpoint_state;
ALTER TABLE endpoint ADD CONSTRAINT endpoint_state CHECK (state in ('pending', 'active', 'paused', 'disabled'));
"""


def upgrade() -> None:
    """A state, and columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """What is being removed is removed at once."""
    run_script(op.get_bind(), DOWN)
