"""Endpoints with states, health, limits and order; hints are of endpoints, not of deliveries.

Revision ID: 0008
Revises: 0007
"""

from alembic import op

from app.db.migrate import run_script

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch ADD COLUMN tells_items BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN batch.tells_items IS 'somebody asked to hear of its items, so that flushes write their events';

ALTER TABLE event ADD COLUMN n INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN event.n IS 'which of several of one kind';
ALTER TABLE event DROP CONSTRAINT event_batch_id_run_kind_key;
ALTER TABLE event ADD CONSTRAINT event_batch_id_run_kind_n_key UNIQUE (batch_id, run, kind, n);

ALTER TABLE endpoint ADD COLUMN state TEXT DEFAULT 'pending' NOT NULL;
UPDATE endpoint SET state = CASE WHEN enabled THEN 'active' ELSE 'disabled' END;
ALTER TABLE endpoint ADD CONSTRAINT endpoint_state CHECK (state in ('pending', 'active', 'paused', 'disabled'));
ALTER TABLE endpoint DROP COLUMN enabled;
ALTER TABLE endpoint RENAME COLUMN disabled_reason TO reason;
ALTER TABLE endpoint
    ADD COLUMN tags TEXT[] DEFAULT '{}' NOT NULL,
    ADD COLUMN ordered BOOLEAN DEFAULT false NOT NULL,
    ADD COLUMN max_in_flight SMALLINT DEFAULT 8 NOT NULL CONSTRAINT endpoint_in_flight_positive CHECK (max_in_flight > 0),
    ADD COLUMN max_per_second FLOAT CONSTRAINT endpoint_rate_positive CHECK (max_per_second > 0),
    ADD COLUMN paced_until TIMESTAMP WITH TIME ZONE,
    ADD COLUMN failures INTEGER DEFAULT 0 NOT NULL,
    ADD COLUMN open_until TIMESTAMP WITH TIME ZONE,
    ADD COLUMN warned SMALLINT DEFAULT 0 NOT NULL,
    ADD COLUMN hinted_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN signing_key BYTEA;

ALTER TABLE delivery ADD COLUMN batch_id BIGINT, ADD COLUMN probe BOOLEAN DEFAULT false NOT NULL;
UPDATE delivery SET batch_id = event.batch_id FROM event WHERE event.event_id = delivery.event_id;
ALTER TABLE delivery DROP COLUMN hinted_at;
ALTER TABLE delivery DROP CONSTRAINT delivery_state;
ALTER TABLE delivery ADD CONSTRAINT delivery_state CHECK (state in ('pending', 'held', 'sending', 'delivered', 'dead'));
CREATE INDEX delivery_next ON delivery (endpoint_id, probe DESC, next_attempt_at, delivery_id) WHERE state = 'pending';
CREATE INDEX delivery_sending ON delivery (endpoint_id) WHERE state = 'sending';
CREATE INDEX delivery_held ON delivery (endpoint_id) WHERE state = 'held';
CREATE INDEX delivery_open ON delivery (endpoint_id, batch_id, delivery_id) WHERE state in ('pending', 'held', 'sending');

COMMENT ON COLUMN endpoint.reason IS 'why it is disabled';
COMMENT ON COLUMN endpoint.tags IS 'only events of batches that have all of them';
COMMENT ON COLUMN endpoint.ordered IS 'of one batch, an event is sent when those before it have come to their end';
COMMENT ON COLUMN endpoint.paced_until IS 'what was sent is paid for by then, at max_per_second';
COMMENT ON COLUMN endpoint.failures IS 'in a row';
COMMENT ON COLUMN endpoint.open_until IS 'breaker: nothing is sent before, then one at a time';
COMMENT ON COLUMN endpoint.warned IS 'how many steps of the ladder its owner was told of';
COMMENT ON COLUMN endpoint.hinted_at IS 'when the broker was last told';
COMMENT ON COLUMN endpoint.signing_key IS 'sealed ed25519 key, for v1a signatures';
COMMENT ON COLUMN delivery.probe IS 'a test event; it is sent to endpoints that are not active, too';
"""


def upgrade() -> None:
    """Every delivery is rewritten once."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Limits, order, public keys and the endpoints' health are lost; paused ones are disabled."""
    run_script(
        op.get_bind(),
        """
DROP INDEX delivery_open, delivery_held, delivery_sending, delivery_next;
UPDATE delivery SET state = 'pending' WHERE state = 'held';
ALTER TABLE delivery DROP CONSTRAINT delivery_state;
ALTER TABLE delivery ADD CONSTRAINT delivery_state CHECK (state in ('pending', 'sending', 'delivered', 'dead'));
ALTER TABLE delivery DROP COLUMN probe, DROP COLUMN batch_id, ADD COLUMN hinted_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN delivery.hinted_at IS 'when the broker was last told';
ALTER TABLE endpoint ADD COLUMN enabled BOOLEAN DEFAULT true NOT NULL;
UPDATE endpoint SET enabled = state in ('pending', 'active');
ALTER TABLE endpoint RENAME COLUMN reason TO disabled_reason;
COMMENT ON COLUMN endpoint.disabled_reason IS NULL;
ALTER TABLE endpoint
    DROP COLUMN state, DROP COLUMN tags, DROP COLUMN ordered, DROP COLUMN max_in_flight, DROP COLUMN max_per_second,
    DROP COLUMN paced_until, DROP COLUMN failures, DROP COLUMN open_until, DROP COLUMN warned, DROP COLUMN hinted_at,
    DROP COLUMN signing_key;
ALTER TABLE event DROP CONSTRAINT event_batch_id_run_kind_n_key;
DELETE FROM event WHERE n > 0;
ALTER TABLE event DROP COLUMN n;
ALTER TABLE event ADD CONSTRAINT event_batch_id_run_kind_key UNIQUE (batch_id, run, kind);
ALTER TABLE batch DROP COLUMN tells_items;
""",
    )
