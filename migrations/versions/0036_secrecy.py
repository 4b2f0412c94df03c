"""Encryption at rest: names of account keys, wrapped keys of batches, files and uploads, and batches whose contents were deleted.

Revision ID: 0036
Revises: 0035
"""

from alembic import op

from app.db.migrate import run_script
from migrations.indexes import Index, build

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

_FILES = ("file", "upload")
COLUMNS = "".join(
    f"""
ALTER TABLE {table} ADD COLUMN IF NOT EXISTS kek TEXT, ADD COLUMN IF NOT EXISTS wrapped_key BYTEA;
COMMENT ON COLUMN {table}.kek IS 'name of the key at the key provider; null: stored in the clear';
COMMENT ON COLUMN {table}.wrapped_key IS 'the data key of its objects, wrapped';"""
    for table in _FILES
)
INDEXES = [Index(f"{table}_kek", table, "(kek) WHERE kek is not null") for table in _FILES]

SCRIPT = """
CREATE TABLE account_kek (
  tenant_id INTEGER NOT NULL,
  kek TEXT NOT NULL,
  retired TEXT,
  CONSTRAINT account_kek_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT account_kek_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN account_kek.kek IS 'name of the key at the key provider that wraps new data keys';
COMMENT ON COLUMN account_kek.retired IS 'the one before it, which a rotation has not destroyed yet';
CREATE TABLE batch_key (
  batch_id BIGINT NOT NULL,
  kek TEXT NOT NULL,
  wrapped BYTEA NOT NULL,
  failed_at TIMESTAMP WITH TIME ZONE,
  failure TEXT,
  CONSTRAINT batch_key_pkey PRIMARY KEY (batch_id),
  CONSTRAINT batch_key_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE
);
CREATE INDEX batch_key_kek ON batch_key (kek);
COMMENT ON COLUMN batch_key.kek IS 'name of the key at the key provider';
COMMENT ON COLUMN batch_key.wrapped IS 'the data key of its bodies, wrapped';
COMMENT ON COLUMN batch_key.failed_at IS 'when a worker could not unwrap it';
COMMENT ON COLUMN batch_key.failure IS 'why it could not';
CREATE TABLE shredding (
  batch_id BIGINT NOT NULL,
  CONSTRAINT shredding_pkey PRIMARY KEY (batch_id),
  CONSTRAINT shredding_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE
);
ALTER TABLE batch ADD COLUMN shredded_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN batch.shredded_at IS 'when its contents were deleted; null: they were not';
"""

DOWN = """
ALTER TABLE file DROP COLUMN kek, DROP COLUMN wrapped_key;
ALTER TABLE upload DROP COLUMN kek, DROP COLUMN wrapped_key;
ALTER TABLE batch DROP COLUMN shredded_at;
DROP TABLE shredding;
DROP TABLE batch_key;
DROP TABLE account_kek;
"""


def upgrade() -> None:
    """Columns without a default, indexes of no row, and empty tables."""
    run_script(op.get_bind(), COLUMNS)
    build(*INDEXES)
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Sealed contents cannot be read any more: their keys are lost."""
    run_script(op.get_bind(), DOWN)
