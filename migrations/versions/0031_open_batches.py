"""Lines for the open batches that were queued before there were any: those under which their usage is booked anyway, without
labels and price. So budgets of tokens count and hold them, too.

A transaction of its own, because it locks batches, and 0030 the chunks.

Revision ID: 0031
Revises: 0030
"""

from alembic import op

from app.db.migrate import run_script

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

SCRIPT = """
INSERT INTO line (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint)
  SELECT DISTINCT tenant_id, '', 'default', '-', true, '-', '-', model, kind, '-' FROM batch
  WHERE finalized_at is null AND line_id is null
  ON CONFLICT DO NOTHING;
UPDATE batch b SET line_id = l.line_id FROM line l
  WHERE b.finalized_at is null AND b.line_id is null AND l.tenant_id = b.tenant_id AND l.model = b.model AND l.kind = b.kind
    AND (l.key_id, l.workflow, l.task, l.critical, l.variant, l.family, l.endpoint)
      = ('', 'default', '-', true, '-', '-', '-')
    AND l.price_in is null AND l.price_cached is null AND l.price_out is null AND l.currency is null;
"""


def upgrade() -> None:
    """Rows only."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Open batches keep their lines."""
