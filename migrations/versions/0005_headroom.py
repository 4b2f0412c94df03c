"""Why an engine's gate is as it is, and the log of its decisions.

Revision ID: 0005
Revises: 0004
"""

from alembic import op

from app.db.migrate import run_script

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE engine
    ADD COLUMN signal TEXT,
    ADD COLUMN value FLOAT(53),
    ADD COLUMN threshold FLOAT(53),
    ADD COLUMN reason_since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL;
COMMENT ON COLUMN engine.signal IS 'what decided: it was value against threshold';
COMMENT ON COLUMN engine.reason_since IS 'since when state and reason are what they are';

CREATE TABLE decision (
    decision_id BIGINT GENERATED ALWAYS AS IDENTITY,
    engine_id BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    layer TEXT NOT NULL CONSTRAINT decision_layer CHECK (layer in ('l1', 'l2')),
    was_allowance INTEGER NOT NULL,
    allowance INTEGER NOT NULL,
    was_reason TEXT NOT NULL,
    reason TEXT NOT NULL,
    signal TEXT,
    value FLOAT(53),
    threshold FLOAT(53),
    in_flight INTEGER NOT NULL,
    credited INTEGER NOT NULL,
    CONSTRAINT decision_pkey PRIMARY KEY (engine_id, at, decision_id)
);
COMMENT ON COLUMN decision.allowance IS 'batch requests that may be in flight';
COMMENT ON COLUMN decision.signal IS 'what was compared: value against threshold';
COMMENT ON COLUMN decision.in_flight IS 'batch requests in the engine';
COMMENT ON COLUMN decision.credited IS 'of these, admitted since the telemetry was taken';
"""


def upgrade() -> None:
    """New columns, of which one gets the same value in every row, and a new table; no row is rewritten."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """The log is lost."""
    run_script(
        op.get_bind(),
        """
DROP TABLE decision;
ALTER TABLE engine DROP COLUMN signal, DROP COLUMN value, DROP COLUMN threshold, DROP COLUMN reason_since;
""",
    )
