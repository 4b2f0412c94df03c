"""What the gateway needs to know: an engine's slots, how much a key may ask for in a minute, and a submit's trace.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

from app.db.migrate import run_script

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE engine ADD COLUMN slots INTEGER DEFAULT 256 NOT NULL;
COMMENT ON COLUMN engine.slots IS 'requests it runs at once';

ALTER TABLE api_key
    ADD COLUMN requests_per_minute INTEGER
        CONSTRAINT api_key_requests_positive CHECK (requests_per_minute > 0),
    ADD COLUMN tokens_per_minute BIGINT
        CONSTRAINT api_key_tokens_positive CHECK (tokens_per_minute > 0);
COMMENT ON COLUMN api_key.requests_per_minute IS 'of synchronous requests; null: as the settings say';
COMMENT ON COLUMN api_key.tokens_per_minute IS 'estimated, of synchronous requests; null: as the settings say';

ALTER TABLE batch ADD COLUMN traceparent TEXT;
COMMENT ON COLUMN batch.traceparent IS 'W3C trace context of the submit';

CREATE TABLE key_usage (
    key_id TEXT NOT NULL,
    minute TIMESTAMP WITH TIME ZONE NOT NULL,
    requests INTEGER NOT NULL,
    tokens BIGINT NOT NULL,
    CONSTRAINT key_usage_pkey PRIMARY KEY (key_id),
    CONSTRAINT key_usage_key_id_fkey FOREIGN KEY(key_id) REFERENCES api_key (key_id)
)
WITH (fillfactor = 50);
COMMENT ON COLUMN key_usage.minute IS 'the minute that the counts are of';
COMMENT ON COLUMN key_usage.tokens IS 'estimated, prompt and answer';
"""


def upgrade() -> None:
    """New columns, empty or with a constant default, and a new table; no row is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Limits of keys are lost."""
    run_script(
        op.get_bind(),
        """
DROP TABLE key_usage;
ALTER TABLE batch DROP COLUMN traceparent;
ALTER TABLE api_key DROP COLUMN requests_per_minute, DROP COLUMN tokens_per_minute;
ALTER TABLE engine DROP COLUMN slots;
""",
    )
