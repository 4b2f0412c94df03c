"""What operating webhooks needs: keys that overlap while they are changed, deliveries sent anew, test events of no batch.

Revision ID: 0007
Revises: 0006
"""

from alembic import op

from app.db.migrate import run_script

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE event ALTER COLUMN batch_id DROP NOT NULL, ALTER COLUMN run DROP NOT NULL;
CREATE INDEX event_tenant ON event (tenant_id, event_id);

ALTER TABLE endpoint ADD COLUMN previous_secret BYTEA, ADD COLUMN previous_until TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN endpoint.previous_secret IS 'signs too, until previous_until';

ALTER TABLE delivery ADD COLUMN attempts_before SMALLINT DEFAULT 0 NOT NULL;
COMMENT ON COLUMN delivery.attempts_before IS 'made before it was last sent anew by hand';
DROP INDEX delivery_endpoint;
CREATE INDEX delivery_endpoint ON delivery (endpoint_id, delivery_id);

ALTER TABLE attempt ADD COLUMN address TEXT;
COMMENT ON COLUMN attempt.address IS 'that answered';
"""


def upgrade() -> None:
    """New columns, empty or with a constant default, and two indexes."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Test events are lost, and keys that were changed stop working at their receivers at once."""
    run_script(
        op.get_bind(),
        """
ALTER TABLE attempt DROP COLUMN address;
DROP INDEX delivery_endpoint;
CREATE INDEX delivery_endpoint ON delivery (endpoint_id);
ALTER TABLE delivery DROP COLUMN attempts_before;
ALTER TABLE endpoint DROP COLUMN previous_secret, DROP COLUMN previous_until;
DELETE FROM delivery USING event WHERE delivery.event_id = event.event_id AND event.batch_id IS NULL;
DELETE FROM event WHERE batch_id IS NULL;
DROP INDEX event_tenant;
ALTER TABLE event ALTER COLUMN batch_id SET NOT NULL, ALTER COLUMN run SET NOT NULL;
""",
    )
