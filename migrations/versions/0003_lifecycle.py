"""Pause, cancel, expiry and retry of batches; engine deaths and retries of chunks; what estimates need.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

from app.db.migrate import run_script

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch
    ADD COLUMN expires_at TIMESTAMP WITH TIME ZONE,
    ADD COLUMN opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    DROP CONSTRAINT batch_state,
    ADD CONSTRAINT batch_state CHECK (state in
        ('open', 'paused', 'cancelling', 'expiring', 'completed', 'failed', 'cancelled', 'expired')),
    DROP CONSTRAINT batch_finalized,
    ADD CONSTRAINT batch_finalized CHECK
        ((finalized_at is not null) = (state in ('completed', 'failed', 'cancelled', 'expired')));
COMMENT ON COLUMN batch.deadline IS 'what the fair order aims at';
COMMENT ON COLUMN batch.opened_at IS 'when its run began';
COMMENT ON COLUMN batch.expires_at IS 'when unfinished items are given up; null: never';
CREATE INDEX batch_expiry ON batch (expires_at) WHERE expires_at is not null and state in ('open', 'paused');
CREATE INDEX batch_halted ON batch (state) WHERE state in ('paused', 'cancelling', 'expiring');

ALTER TABLE chunk
    ADD COLUMN deaths SMALLINT DEFAULT 0 NOT NULL,
    ADD COLUMN retries SMALLINT DEFAULT 0 NOT NULL,
    DROP CONSTRAINT chunk_state,
    ADD CONSTRAINT chunk_state CHECK (state in ('ready', 'leased', 'delayed', 'held'));
COMMENT ON COLUMN chunk.attempt IS 'workers that were lost with it';
COMMENT ON COLUMN chunk.deaths IS 'engine deaths that its item was in';
COMMENT ON COLUMN chunk.retries IS 'rounds of transient engine errors';
CREATE INDEX chunk_edf ON chunk (pool_id, deadline) WHERE state = 'ready';
CREATE INDEX chunk_held ON chunk (batch_id) WHERE state = 'held';

ALTER TABLE sched ADD COLUMN served_tokens BIGINT DEFAULT 0 NOT NULL, ADD COLUMN drifts INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN sched.drifts IS 'how often the caches had to be corrected';
COMMENT ON COLUMN sched.served_tokens IS 'estimated tokens of items done, ever growing';
CREATE TABLE pace (
    pool_id SMALLINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    served_tokens BIGINT NOT NULL,
    CONSTRAINT pace_pkey PRIMARY KEY (pool_id, at)
);
COMMENT ON COLUMN pace.served_tokens IS 'of all tenants of the pool, ever growing';
"""


def upgrade() -> None:
    """New states, columns and indexes; no row is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Possible only while no row is in a new state."""
    run_script(
        op.get_bind(),
        """
DROP TABLE pace;
ALTER TABLE sched DROP COLUMN served_tokens, DROP COLUMN drifts;
DROP INDEX chunk_edf, chunk_held, batch_expiry, batch_halted;
ALTER TABLE chunk DROP COLUMN deaths, DROP COLUMN retries, DROP CONSTRAINT chunk_state,
    ADD CONSTRAINT chunk_state CHECK (state in ('ready', 'leased', 'delayed'));
ALTER TABLE batch DROP COLUMN expires_at, DROP COLUMN opened_at, DROP CONSTRAINT batch_state, DROP CONSTRAINT batch_finalized,
    ADD CONSTRAINT batch_state CHECK (state in ('open', 'completed', 'failed')),
    ADD CONSTRAINT batch_finalized CHECK ((finalized_at is not null) = (state in ('completed', 'failed')));
""",
    )
