"""Events that are fetched instead of sent, filters by metadata, hosts that an account may be sent webhooks at.

Revision ID: 0009
Revises: 0008
"""

from alembic import op

from app.db.migrate import run_script

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE endpoint
    ALTER COLUMN url DROP NOT NULL,
    ALTER COLUMN secret DROP NOT NULL,
    ADD COLUMN queue_id TEXT,
    ADD COLUMN metadata JSONB DEFAULT '{}' NOT NULL,
    ADD CONSTRAINT endpoint_sent_or_fetched CHECK ((url is null) <> (queue_id is null)
        and (url is null) = (secret is null));
COMMENT ON COLUMN endpoint.url IS 'where its events are sent; null: they are fetched';
COMMENT ON COLUMN endpoint.secret IS 'encrypted signing secret; null: its events are fetched';
COMMENT ON COLUMN endpoint.queue_id IS 'what its events are fetched by; null: they are sent';
COMMENT ON COLUMN endpoint.metadata IS 'only events of batches whose metadata has all of it';
COMMENT ON COLUMN delivery.next_attempt_at IS 'infinity: it is fetched';

CREATE INDEX delivery_dead ON delivery (endpoint_id) WHERE state = 'dead';

ALTER TABLE tenant ADD COLUMN webhook_hosts TEXT[];
COMMENT ON COLUMN tenant.webhook_hosts IS 'the only hosts that its webhooks may go to; null: any that the settings allow';
"""


def upgrade() -> None:
    """Nothing is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Subscriptions without a URL are lost, with what waited to be fetched."""
    run_script(
        op.get_bind(),
        """
DROP INDEX delivery_dead;
ALTER TABLE tenant DROP COLUMN webhook_hosts;
DELETE FROM endpoint WHERE url IS NULL;
ALTER TABLE endpoint DROP CONSTRAINT endpoint_sent_or_fetched;
ALTER TABLE endpoint
    DROP COLUMN queue_id, DROP COLUMN metadata, ALTER COLUMN url SET NOT NULL, ALTER COLUMN secret SET NOT NULL;
COMMENT ON COLUMN endpoint.url IS NULL;
COMMENT ON COLUMN endpoint.secret IS 'encrypted signing secret';
COMMENT ON COLUMN delivery.next_attempt_at IS NULL;
""",
    )
