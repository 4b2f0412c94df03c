"""The lines of a batch's further models, and of items that a budget moved to another model; lanes of strict budgets.

Columns of large tables are null in existing rows, so none is rewritten. A retry of a batch from before takes the newest line of
the model. There are few lanes.

Revision ID: 0028
Revises: 0027
"""

from alembic import op

from app.db.migrate import run_script

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch ADD COLUMN model_lines INTEGER[];
COMMENT ON COLUMN batch.model_lines IS 'lines of its models, the first one''s first; null: it has one model, of line_id';
ALTER TABLE item_payload ADD COLUMN line_id INTEGER;
COMMENT ON COLUMN item_payload.line_id IS 'line at whose price a budget moved it to its model; null: that of the batch''s model';
ALTER TABLE lane ADD COLUMN strict BOOLEAN DEFAULT false NOT NULL;
UPDATE lane SET strict = true WHERE EXISTS (SELECT FROM budget b WHERE b.budget_id = ANY (budget_ids) AND b.strict);
ALTER TABLE lane DROP CONSTRAINT lane_tenant_id_budget_ids_key,
  ADD CONSTRAINT lane_tenant_id_budget_ids_strict_key UNIQUE (tenant_id, budget_ids, strict);
COMMENT ON COLUMN lane.strict IS 'whether a hold is all that a request can cost, because one of the budgets is strict';
"""

DOWN = """
UPDATE chunk c SET lane = k.lane_id FROM lane l JOIN lane k USING (tenant_id, budget_ids)
  WHERE c.lane = l.lane_id AND l.strict AND NOT k.strict;
UPDATE batch_delta d SET lane = k.lane_id FROM lane l JOIN lane k USING (tenant_id, budget_ids)
  WHERE d.lane = l.lane_id AND l.strict AND NOT k.strict;
DELETE FROM lane l USING lane k
  WHERE l.strict AND NOT k.strict AND (l.tenant_id, l.budget_ids) = (k.tenant_id, k.budget_ids);
ALTER TABLE lane DROP CONSTRAINT lane_tenant_id_budget_ids_strict_key,
  ADD CONSTRAINT lane_tenant_id_budget_ids_key UNIQUE (tenant_id, budget_ids);
ALTER TABLE lane DROP COLUMN strict;
ALTER TABLE item_payload DROP COLUMN line_id;
ALTER TABLE batch DROP COLUMN model_lines;
"""


def upgrade() -> None:
    """Three columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """A retry takes the newest lines again."""
    run_script(op.get_bind(), DOWN)
