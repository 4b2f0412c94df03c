"""Indexes by which an account's batches are listed: all, by state, by model, by tag, by metadata.

Revision ID: 0014
Revises: 0011
"""

from alembic import op

from app.db.migrate import run_script

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE INDEX batch_listed ON batch (tenant_id, created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_listed_by_state ON batch (tenant_id, state, created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_listed_by_model ON batch (tenant_id, model, state, created_at, request_id) WHERE kind = 'batch';
CREATE INDEX batch_tags ON batch USING gin (tags) WHERE tags <> '{}';
CREATE INDEX batch_meta ON batch USING gin (meta jsonb_path_ops) WHERE meta IS NOT NULL;
CREATE INDEX file_batch_refused ON file_batch (tenant_id, created_at, request_id) WHERE batch_id IS NULL;
"""

DOWN = """
DROP INDEX file_batch_refused;
DROP INDEX batch_meta;
DROP INDEX batch_tags;
DROP INDEX batch_listed_by_model;
DROP INDEX batch_listed_by_state;
DROP INDEX batch_listed;
"""


def upgrade() -> None:
    """Six indexes; those on tags and metadata hold only batches that have some."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Listings read every batch again."""
    run_script(op.get_bind(), DOWN)
