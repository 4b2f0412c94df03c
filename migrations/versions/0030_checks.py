"""What 0026 left for a transaction of its own; what a policy restores; when a quota was reached; the last check of the ledger.

The scans of the chunks here, for the constraint and for the indexes, let claims and results of other transactions go on.

Revision ID: 0030
Revises: 0029
"""

from alembic import op

from app.db.migrate import run_script
from migrations.indexes import Index, build

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

INDEXES = (
    Index("chunk_unfunded", "chunk", "(lane, pool_id, deadline, chunk_id) WHERE state = 'unfunded'"),
    Index("chunk_funded", "chunk", "(lane, pool_id) WHERE held is not null"),
)

SCRIPT = """
ALTER TABLE chunk VALIDATE CONSTRAINT chunk_state;
ALTER TABLE policy ADD COLUMN restores INTEGER;
COMMENT ON COLUMN policy.restores IS 'the version whose text it put in force again; null: none';
CREATE TABLE quota_reached (
  tenant_id INTEGER NOT NULL,
  quota TEXT NOT NULL,
  hour TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT quota_reached_pkey PRIMARY KEY (tenant_id, quota),
  CONSTRAINT quota_reached_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN quota_reached.quota IS 'name of the column in quota';
COMMENT ON COLUMN quota_reached.hour IS 'in which the event was written last';
CREATE TABLE ledger_check (
  one BOOLEAN NOT NULL CONSTRAINT ledger_check_one CHECK (one),
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  drift BIGINT NOT NULL,
  CONSTRAINT ledger_check_pkey PRIMARY KEY (one)
);
COMMENT ON COLUMN ledger_check.one IS 'always true: one row';
COMMENT ON COLUMN ledger_check.at IS 'when the ledger was compared with the queue';
COMMENT ON COLUMN ledger_check.drift IS 'sum of all differences, without their signs; should be 0';
"""

DOWN = """
DROP INDEX chunk_unfunded;
DROP INDEX chunk_funded;
DROP TABLE ledger_check;
DROP TABLE quota_reached;
ALTER TABLE policy DROP COLUMN restores;
"""


def upgrade() -> None:
    """Two tables, a column, two indexes, and a constraint that is checked."""
    build(*INDEXES)
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """The constraint stays checked."""
    run_script(op.get_bind(), DOWN)
