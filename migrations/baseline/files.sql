-- Files, uploads in parts, the batches made from files, and the objects behind them.

-- Which store the objects of this installation are in.
CREATE TABLE object_store (
  single BOOLEAN DEFAULT true NOT NULL CONSTRAINT object_store_one CHECK (single),
  marker UUID NOT NULL,
  writer TEXT NOT NULL,
  place TEXT NOT NULL,
  bodies BOOLEAN NOT NULL,
  made_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT object_store_pkey PRIMARY KEY (single)
);
COMMENT ON COLUMN object_store.marker IS 'id of the marker object, which every process must find in its store';
COMMENT ON COLUMN object_store.writer IS 'the process that wrote the marker, and its host';
COMMENT ON COLUMN object_store.place IS 'the address of the store, as the writer has it';
COMMENT ON COLUMN object_store.bodies IS 'whether the store may contain bodies of items';

-- An object that is kept for a while after its rows have gone.
CREATE TABLE object_removal (
  path TEXT NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT object_removal_pkey PRIMARY KEY (path)
);
COMMENT ON COLUMN object_removal.path IS 'key of an object; with / at its end, what the keys of several begin with';
COMMENT ON COLUMN object_removal.due_at IS 'when a maintenance worker removes them from the store';

-- A file of a caller.
CREATE TABLE file (
  file_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  purpose TEXT NOT NULL,
  filename TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL CONSTRAINT file_state CHECK (state in ('pending', 'ready')),
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  lines INTEGER NOT NULL,
  problems JSONB,
  demand JSONB,
  kek TEXT,
  wrapped_key BYTEA,
  rewrites INTEGER DEFAULT 0 NOT NULL,
  CONSTRAINT file_pkey PRIMARY KEY (file_id),
  CONSTRAINT file_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
CREATE INDEX file_expiry ON file (expires_at) WHERE expires_at is not null;
CREATE INDEX file_kek ON file (kek) WHERE kek is not null;
CREATE INDEX file_tenant ON file (tenant_id, created_at, file_id);
ALTER TABLE file ALTER problems SET STATISTICS 0;
COMMENT ON COLUMN file.lines IS 'number of lines that are not blank';
COMMENT ON COLUMN file.problems IS 'errors of its lines, as a batch of the file would list them; null: none';
COMMENT ON COLUMN file.demand IS 'what a batch of the file requests, by model: requests, and tokens as in the class Demand';
COMMENT ON COLUMN file.kek IS 'name of the key at the key provider; null: stored in the clear';
COMMENT ON COLUMN file.wrapped_key IS 'the data key of its objects, wrapped';
COMMENT ON COLUMN file.rewrites IS 'how often what was stored has been redacted: its content is another one since then';

-- A batch that was made from a file, with its output and error files.
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
  partial BOOLEAN DEFAULT false NOT NULL,
  mixed BOOLEAN DEFAULT false NOT NULL,
  terms BYTEA,
  output_bytes BIGINT,
  error_bytes BIGINT,
  counted_run SMALLINT,
  listed_at TIMESTAMP WITH TIME ZONE,
  former_files UUID[],
  former_at TIMESTAMP WITH TIME ZONE[],
  rewrites INTEGER DEFAULT 0 NOT NULL,
  CONSTRAINT file_batch_pkey PRIMARY KEY (request_id),
  CONSTRAINT file_batch_refused_or_running CHECK ((batch_id is null) = (problems is not null)),
  CONSTRAINT file_batch_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id),
  CONSTRAINT file_batch_batch_id_fkey FOREIGN KEY (batch_id) REFERENCES batch (batch_id) ON DELETE CASCADE,
  CONSTRAINT file_batch_output_file_id_key UNIQUE (output_file_id),
  CONSTRAINT file_batch_error_file_id_key UNIQUE (error_file_id)
);
CREATE INDEX file_batch_batch ON file_batch (batch_id);
CREATE INDEX file_batch_former ON file_batch (tenant_id) WHERE former_files is not null;
CREATE INDEX file_batch_listed ON file_batch (tenant_id, listed_at) WHERE listed_at > '-infinity';
CREATE INDEX file_batch_refused ON file_batch (tenant_id, created_at, request_id) WHERE batch_id is null;
CREATE INDEX file_batch_tenant ON file_batch (tenant_id, created_at, request_id);
CREATE INDEX file_batch_unlisted ON file_batch (batch_id) WHERE listed_at is null and batch_id is not null;
ALTER TABLE file_batch ALTER problems SET STATISTICS 0;
COMMENT ON COLUMN file_batch.request_id IS 'that of its batch: the id that callers see';
COMMENT ON COLUMN file_batch.batch_id IS 'null: the batch was refused';
COMMENT ON COLUMN file_batch.input_file_id IS 'as the caller wrote it';
COMMENT ON COLUMN file_batch.problems IS 'why it was refused';
COMMENT ON COLUMN file_batch.output_seconds IS 'how long its files are kept after its end; null: as long as the batch';
COMMENT ON COLUMN file_batch.partial IS 'its files can be read while it runs';
COMMENT ON COLUMN file_batch.mixed IS 'its lines may name several models and endpoints';
COMMENT ON COLUMN file_batch.terms IS 'hash of all parameters of the create beside the file; null: not created from a file';
COMMENT ON COLUMN file_batch.counted_run IS 'the run whose files have output_bytes and error_bytes';
COMMENT ON COLUMN file_batch.listed_at IS 'since when its files can be read: its place among all; null: not yet; -infinity: no longer';
COMMENT ON COLUMN file_batch.former_files IS 'output and error files of the latest runs before, the last one first';
COMMENT ON COLUMN file_batch.former_at IS 'their places among all, one for each run';
COMMENT ON COLUMN file_batch.rewrites IS 'how often what was stored has been redacted: its content is another one since then';

-- A file that is uploaded in parts.
CREATE TABLE upload (
  upload_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  filename TEXT NOT NULL,
  purpose TEXT NOT NULL,
  bytes BIGINT NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL CONSTRAINT upload_state CHECK (state in ('pending', 'completed', 'cancelled')),
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  file_seconds DOUBLE PRECISION NOT NULL,
  file_id UUID,
  kek TEXT,
  wrapped_key BYTEA,
  CONSTRAINT upload_pkey PRIMARY KEY (upload_id),
  CONSTRAINT upload_completed CHECK ((state = 'completed') = (file_id is not null)),
  CONSTRAINT upload_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
CREATE INDEX upload_expiry ON upload (expires_at);
CREATE INDEX upload_kek ON upload (kek) WHERE kek is not null;
COMMENT ON COLUMN upload.bytes IS 'size that the caller announced';
COMMENT ON COLUMN upload.file_seconds IS 'how long the file is kept after the upload was completed';
COMMENT ON COLUMN upload.kek IS 'name of the key at the key provider; null: stored in the clear';
COMMENT ON COLUMN upload.wrapped_key IS 'the data key of its objects, wrapped';

-- A part of it.
CREATE TABLE upload_part (
  part_id UUID NOT NULL,
  upload_id UUID NOT NULL,
  bytes BIGINT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT upload_part_pkey PRIMARY KEY (part_id),
  CONSTRAINT upload_part_upload_id_fkey FOREIGN KEY (upload_id) REFERENCES upload (upload_id) ON DELETE CASCADE
);
CREATE INDEX upload_part_upload ON upload_part (upload_id);
