"""Budgets: the models that work was moved to, a note of its own that money has ended, what calls can cost beyond their holds, the length
that answers without a limit rarely exceed, and whether a batch has sessions.

The new columns have constant defaults, so no row is rewritten.

Revision ID: 0029
Revises: 0028
"""

from alembic import op

from app.db.migrate import run_script

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE budget DROP COLUMN diverted, ADD COLUMN diverted_to TEXT[] DEFAULT '{}' NOT NULL,
  ADD COLUMN spent_noted BOOLEAN DEFAULT false NOT NULL;
UPDATE budget SET spent_noted = notified >= 100;
COMMENT ON COLUMN budget.notified IS 'per cent up to which events of soft thresholds were written in this window';
COMMENT ON COLUMN budget.diverted_to IS 'models to which work was diverted in this window, each with an event';
COMMENT ON COLUMN budget.spent_noted IS 'whether the event that its money has ended was written in this window';
CREATE TABLE answer_length (
  tenant_id INTEGER NOT NULL,
  workflow TEXT NOT NULL,
  task TEXT NOT NULL,
  model TEXT NOT NULL,
  p95 INTEGER NOT NULL,
  answers INTEGER NOT NULL,
  learned_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT answer_length_pkey PRIMARY KEY (tenant_id, workflow, task, model),
  CONSTRAINT answer_length_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
COMMENT ON COLUMN answer_length.p95 IS 'tokens that 95 of 100 recent answers without a limit do not exceed';
COMMENT ON COLUMN answer_length.answers IS 'of which it was learned';
ALTER TABLE batch ADD COLUMN diverted_to TEXT[], ADD COLUMN has_sessions BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN batch.has_sessions IS 'whether items of it belong to sessions';
COMMENT ON COLUMN batch.diverted_to IS 'models to which a budget moved some of its items; null: none';
ALTER TABLE budget_slice ADD COLUMN beyond BIGINT DEFAULT 0 NOT NULL;
COMMENT ON COLUMN budget_slice.beyond IS 'what the requests in an engine can cost beyond what they hold, at the last report';
"""

DOWN = """
DROP TABLE answer_length;
ALTER TABLE budget_slice DROP COLUMN beyond;
ALTER TABLE batch DROP COLUMN diverted_to, DROP COLUMN has_sessions;
ALTER TABLE budget ADD COLUMN diverted BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN budget.diverted IS 'whether work was diverted in this window';
UPDATE budget SET diverted = diverted_to <> '{}', notified = CASE WHEN spent_noted THEN 100 ELSE notified END;
ALTER TABLE budget DROP COLUMN diverted_to, DROP COLUMN spent_noted;
COMMENT ON COLUMN budget.notified IS 'per cent up to which events were written in this window';
"""


def upgrade() -> None:
    """A table and columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Which models work was diverted to is lost; lengths of answers would be learned again."""
    run_script(op.get_bind(), DOWN)
