"""More than OpenAI's batches: several models in one file, files read while their batch runs, uploads in parts, single requests
that go through the queue (background responses, flex) and the events of a background response.

Revision ID: 0011
Revises: 0010
"""

from alembic import op

from app.db.migrate import run_script

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

SCRIPT = """
ALTER TABLE batch ADD COLUMN kind TEXT DEFAULT 'batch' NOT NULL;
ALTER TABLE batch ADD CONSTRAINT batch_kind CHECK (kind in ('batch', 'response', 'flex'));
COMMENT ON COLUMN batch.kind IS 'response, flex: one request that its caller waits for';
CREATE INDEX batch_single ON batch (tenant_id, request_hash, created_at) WHERE kind <> 'batch';

ALTER TABLE file ADD COLUMN demand JSONB;
COMMENT ON COLUMN file.demand IS 'what a batch of it asks for, by model: requests, prompt_tokens, answer_tokens';

ALTER TABLE file_batch ADD COLUMN partial BOOLEAN DEFAULT false NOT NULL;
ALTER TABLE file_batch ADD COLUMN mixed BOOLEAN DEFAULT false NOT NULL;
ALTER TABLE file_batch ADD COLUMN output_bytes BIGINT;
ALTER TABLE file_batch ADD COLUMN error_bytes BIGINT;
ALTER TABLE file_batch ADD COLUMN counted_run SMALLINT;
COMMENT ON COLUMN file_batch.partial IS 'its files can be read while it runs';
COMMENT ON COLUMN file_batch.mixed IS 'its lines may name several models and endpoints';
COMMENT ON COLUMN file_batch.counted_run IS 'the run whose files have output_bytes and error_bytes';

CREATE TABLE upload (
    upload_id UUID NOT NULL,
    tenant_id INTEGER NOT NULL,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    state TEXT DEFAULT 'pending' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    file_seconds DOUBLE PRECISION NOT NULL,
    file_id UUID,
    PRIMARY KEY (upload_id),
    FOREIGN KEY(tenant_id) REFERENCES tenant (tenant_id),
    CONSTRAINT upload_state CHECK (state in ('pending', 'completed', 'cancelled')),
    CONSTRAINT upload_completed CHECK ((state = 'completed') = (file_id is not null))
);
COMMENT ON COLUMN upload.bytes IS 'as the caller announced';
COMMENT ON COLUMN upload.file_seconds IS 'the file goes so long after it was completed';
CREATE INDEX upload_expiry ON upload (expires_at);

CREATE TABLE upload_part (
    part_id UUID NOT NULL,
    upload_id UUID NOT NULL,
    bytes BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    PRIMARY KEY (part_id),
    FOREIGN KEY(upload_id) REFERENCES upload (upload_id) ON DELETE CASCADE
);
CREATE INDEX upload_part_upload ON upload_part (upload_id);

CREATE TABLE response_events (
    batch_id BIGINT NOT NULL,
    number INTEGER NOT NULL,
    last INTEGER NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (batch_id, number),
    FOREIGN KEY(batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE
);
COMMENT ON COLUMN response_events.number IS 'sequence number of the first event of the row';
COMMENT ON COLUMN response_events.last IS 'of the last one';
COMMENT ON COLUMN response_events.body IS 'a JSON array';
"""

DOWN = """
DROP TABLE response_events;
DROP TABLE upload_part;
DROP TABLE upload;
ALTER TABLE file_batch DROP COLUMN counted_run, DROP COLUMN error_bytes, DROP COLUMN output_bytes, DROP COLUMN mixed,
  DROP COLUMN partial;
ALTER TABLE file DROP COLUMN demand;
DROP INDEX batch_single;
ALTER TABLE batch DROP COLUMN kind;
"""


def upgrade() -> None:
    """Three new tables, new columns."""
    run_script(op.get_bind(), SCRIPT)


def downgrade() -> None:
    """Uploads that are under way and events of background responses are lost."""
    run_script(op.get_bind(), DOWN)
