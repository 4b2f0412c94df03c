-- Conversations and stored responses.

-- The wrapped data key of a conversation, or of a tree of responses.
CREATE TABLE turn_key (
  key_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  kek TEXT NOT NULL,
  wrapped BYTEA NOT NULL,
  CONSTRAINT turn_key_pkey PRIMARY KEY (key_id),
  CONSTRAINT turn_key_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
CREATE INDEX turn_key_kek ON turn_key (kek);
CREATE INDEX turn_key_tenant ON turn_key (tenant_id);
COMMENT ON COLUMN turn_key.kek IS 'name of the key at the key provider';
COMMENT ON COLUMN turn_key.wrapped IS 'the data key of turns, wrapped';

-- A conversation.
CREATE TABLE session (
  session_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  version INTEGER DEFAULT 0 NOT NULL,
  edits INTEGER DEFAULT 0 NOT NULL,
  turn_id UUID,
  lease_until TIMESTAMP WITH TIME ZONE,
  base INTEGER DEFAULT 0 NOT NULL,
  folded BIGINT DEFAULT 0 NOT NULL,
  summary BYTEA,
  checkpoint_batch BIGINT,
  checkpoint_n INTEGER,
  slope DOUBLE PRECISION,
  meta JSONB DEFAULT '{}' NOT NULL,
  key_id UUID,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  used_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT session_pkey PRIMARY KEY (session_id),
  CONSTRAINT session_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
) WITH (fillfactor = 70);
CREATE INDEX session_checkpoint ON session (checkpoint_batch) WHERE checkpoint_batch is not null;
CREATE INDEX session_tenant ON session (tenant_id);
CREATE INDEX session_used ON session (used_at);
ALTER TABLE session ALTER summary SET STATISTICS 0, ALTER meta SET STATISTICS 0;
COMMENT ON COLUMN session.version IS 'number of the last turn that ended';
COMMENT ON COLUMN session.edits IS 'how often what its turns say was changed: a turn that was prepared before does not begin';
COMMENT ON COLUMN session.turn_id IS 'the turn that runs: the fence of its end; null: none runs';
COMMENT ON COLUMN session.lease_until IS 'when the running turn has failed unless renewed; null: its batch decides';
COMMENT ON COLUMN session.base IS 'summary stands for the turns up to this one';
COMMENT ON COLUMN session.folded IS 'bytes of the turns for which summary stands';
COMMENT ON COLUMN session.summary IS 'of a checkpoint, sealed as a turn is; null: there is none';
COMMENT ON COLUMN session.checkpoint_batch IS 'the batch that makes a summary; null: none does';
COMMENT ON COLUMN session.checkpoint_n IS 'the last turn that this summary will stand for';
COMMENT ON COLUMN session.slope IS 'tokens by which a prompt is longer than the one before; null: too few turns';
COMMENT ON COLUMN session.meta IS 'OpenAI''s metadata';
COMMENT ON COLUMN session.key_id IS 'the data key of new turns; null: they are in the clear';
COMMENT ON COLUMN session.used_at IS 'when its last turn ended';

-- A response of a conversation, or items that its owner added. Without a session it is a stored response; those that continue each other
-- by previous_response_id form a tree.
CREATE TABLE turn (
  turn_id UUID NOT NULL,
  tenant_id INTEGER NOT NULL,
  session_id UUID,
  n INTEGER NOT NULL,
  parent_turn UUID,
  state TEXT DEFAULT 'queued' NOT NULL
    CONSTRAINT turn_state CHECK (state in ('queued', 'running', 'done', 'failed', 'cancelled')),
  batch_id BIGINT,
  model TEXT,
  spender JSONB,
  input BYTEA NOT NULL,
  original BYTEA,
  output BYTEA,
  vault BYTEA,
  key_id UUID,
  prompt_tokens INTEGER DEFAULT 0 NOT NULL,
  cached_tokens INTEGER DEFAULT 0 NOT NULL,
  completion_tokens INTEGER DEFAULT 0 NOT NULL,
  idempotency_key TEXT,
  request_hash BYTEA,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  finished_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT turn_pkey PRIMARY KEY (turn_id),
  CONSTRAINT turn_session_id_n_key UNIQUE (session_id, n),
  CONSTRAINT turn_session_id_idempotency_key_key UNIQUE (session_id, idempotency_key),
  CONSTRAINT turn_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE,
  CONSTRAINT turn_session_id_fkey FOREIGN KEY (session_id) REFERENCES session (session_id) ON DELETE CASCADE
);
CREATE INDEX turn_child ON turn (parent_turn) WHERE parent_turn is not null;
CREATE INDEX turn_old ON turn (created_at) WHERE session_id is null;
CREATE INDEX turn_open ON turn (batch_id) WHERE state in ('queued', 'running');
CREATE INDEX turn_queued ON turn (session_id, n) WHERE state = 'queued';
CREATE INDEX turn_tenant ON turn (tenant_id);
ALTER TABLE turn ALTER input SET STATISTICS 0, ALTER original SET STATISTICS 0, ALTER output SET STATISTICS 0,
  ALTER vault SET STATISTICS 0;
COMMENT ON COLUMN turn.turn_id IS 'the id of its response';
COMMENT ON COLUMN turn.session_id IS 'null: of no conversation';
COMMENT ON COLUMN turn.n IS 'from 1: place in its conversation, or depth in its tree';
COMMENT ON COLUMN turn.parent_turn IS 'previous_response_id of a response of no conversation';
COMMENT ON COLUMN turn.batch_id IS 'the batch of a background response; null: it is none';
COMMENT ON COLUMN turn.model IS 'that answers it; null: items that the owner added';
COMMENT ON COLUMN turn.spender IS 'the key and the labels of its request, by name; null: of items that the owner added';
COMMENT ON COLUMN turn.input IS 'JSON array of items, redacted, shortened, perhaps sealed';
COMMENT ON COLUMN turn.original IS 'the input before it was shortened; null: it was not';
COMMENT ON COLUMN turn.output IS 'the response object, perhaps sealed; null: it has none';
COMMENT ON COLUMN turn.vault IS 'sealed values of all placeholders so far; null: there are none';
COMMENT ON COLUMN turn.key_id IS 'the data key that seals it; null: it is in the clear';
COMMENT ON COLUMN turn.request_hash IS 'of the body that came with the key';
