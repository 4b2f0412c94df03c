"""Files, and batches made of them.

Revision ID: 0010
Revises: 0009
"""

from alembic import op

from app.db.migrate import run_script

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SCRIPT = """
CREATE TABLE file (
    file_id UUID NOT NULL,
    tenant_id INTEGER NOT NULL,
    purpose TEXT NOT NULL,
    filename TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    lines INTEGER NOT NULL,
    problems JSONB,
    PRIMARY KEY (file_id),
    FOREIGN KEY(tenant_id) REFERENCES tenant (tenant_id)
);
COMMENT ON COLUMN file.lines IS 'that are not blank';
COMMENT ON COLUMN file.problems IS 'what is wrong with its lines, as a batch of it would tell; null: nothing';
CREATE INDEX file_tenant ON file (tenant_id, created_at, file_id);
CREATE INDEX file_expiry ON file (expires_at) WHERE expires_at is not null;

CREATE TABLE file_batch (
    request_id UUID NOT NULL,
    tenant_id INTEGER NOT NULL,
    batch_id BIGINT,
    input_file_id TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    completion_window TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    cancelling_at TIMESTAMP WITH TIME ZONE,
    metadata JSONB,
    problems JSONB,
    output_file_id UUID NOT NULL,
    error_file_id UUID NOT NULL,
    output_seconds INTEGER,
    output_deleted_at TIMESTAMP WITH TIME ZONE,
    error_deleted_at TIMESTAMP WITH TIME ZONE,
    PRIMARY KEY (request_id),
    FOREIGN KEY(tenant_id) REFERENCES tenant (tenant_id),
    FOREIGN KEY(batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE,
    UNIQUE (output_file_id),
    UNIQUE (error_file_id),
    CONSTRAINT file_batch_refused_or_running CHECK ((batch_id is null) = (problems is not null))
);
COMMENT ON COLUMN file_batch.request_id IS 'of its batch; the id callers see';
COMMENT ON COLUMN file_batch.batch_id IS 'null: refused';
COMMENT ON COLUMN file_batch.input_file_id IS 'as the caller wrote it';
COMMENT ON COLUMN file_batch.problems IS 'why it was refused';
COMMENT ON COLUMN file_batch.output_seconds IS 'its files go so long after its end; null: with the batch';
CREATE INDEX file_batch_tenant ON file_batch (tenant_id, created_at, request_id);
CREATE INDEX file_batch_batch ON file_batch (batch_id);
"""


def upgrade() -> None:
    """Two new tables."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Files are forgotten; their content stays in the object store."""
    run_script(op.get_bind(), "DROP TABLE file_batch; DROP TABLE file;")
