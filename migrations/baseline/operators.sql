-- Operators: their tokens and console sessions, the policy that they set, and what changed in the installation.

-- A token of an operator, for the commands. Only its keyed hash is kept.
CREATE TABLE operator_token (
  token_id TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL CONSTRAINT operator_token_role CHECK (role in ('operator', 'auditor')),
  secret_hash BYTEA NOT NULL,
  master_key TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  last_used_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT operator_token_pkey PRIMARY KEY (token_id),
  CONSTRAINT operator_token_lifetime CHECK (expires_at <= created_at + interval '90 days')
);
COMMENT ON COLUMN operator_token.name IS 'the person or the program that has it, as the audit log shows it';
COMMENT ON COLUMN operator_token.secret_hash IS 'HMAC-SHA256 under the pepper';
COMMENT ON COLUMN operator_token.master_key IS 'id of the master key whose pepper secret_hash has';
COMMENT ON COLUMN operator_token.last_used_at IS 'coarse: written at most once a minute';

-- Whose token this is, by hashes of its secret, the newest first; no row: of nobody now. A use is noted once a minute, with the newest
-- hash. The API may call this and not touch the table: it can neither read a hash nor revive, promote or take over a token.
CREATE FUNCTION use_operator_token(used TEXT, shown BYTEA[], newest_master TEXT)
RETURNS TABLE (used_name TEXT, used_role TEXT) LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
  WITH found AS MATERIALIZED (
    SELECT token_id, name, role, coalesce(last_used_at < now() - interval '1 minute', true) AS due FROM operator_token
    WHERE token_id = used AND secret_hash = any(shown) AND revoked_at IS NULL AND expires_at > now()),
  noted AS (
    UPDATE operator_token t SET last_used_at = now(), secret_hash = shown[1], master_key = newest_master
    FROM found f WHERE t.token_id = f.token_id AND f.due)
  SELECT name, role FROM found $$;
REVOKE EXECUTE ON FUNCTION use_operator_token FROM PUBLIC;

-- A link that signs in to the console, once.
CREATE TABLE console_login (
  hash BYTEA NOT NULL,
  subject TEXT NOT NULL,
  role TEXT NOT NULL CONSTRAINT console_login_role CHECK (role in ('viewer', 'admin', 'operator', 'auditor')),
  tenant_id INTEGER,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT console_login_pkey PRIMARY KEY (hash),
  CONSTRAINT console_login_scope CHECK ((tenant_id is not null) = (role in ('viewer', 'admin'))),
  CONSTRAINT console_login_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN console_login.hash IS 'SHA-256 of the token of a one-time link';
COMMENT ON COLUMN console_login.subject IS 'who signs in';
COMMENT ON COLUMN console_login.tenant_id IS 'the account of a viewer or an admin; null: the installation';

-- A session of the console.
CREATE TABLE console_session (
  session_id BIGINT GENERATED ALWAYS AS IDENTITY,
  hash BYTEA NOT NULL,
  subject TEXT NOT NULL,
  role TEXT NOT NULL CONSTRAINT console_session_role CHECK (role in ('viewer', 'admin', 'operator', 'auditor')),
  tenant_id INTEGER,
  signed_in_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  revoked_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT console_session_pkey PRIMARY KEY (session_id),
  CONSTRAINT console_session_scope CHECK ((tenant_id is not null) = (role in ('viewer', 'admin'))),
  CONSTRAINT console_session_hash_key UNIQUE (hash),
  CONSTRAINT console_session_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN console_session.hash IS 'SHA-256 of the cookie''s token';
COMMENT ON COLUMN console_session.subject IS 'who signs in';
COMMENT ON COLUMN console_session.tenant_id IS 'the account of a viewer or an admin; null: the installation';
COMMENT ON COLUMN console_session.seen_at IS 'coarse: at most once a minute';
COMMENT ON COLUMN console_session.expires_at IS 'its end, however much it is used';

-- A version of the policy. The newest is in force.
CREATE TABLE policy (
  policy_id INTEGER GENERATED ALWAYS AS IDENTITY,
  hash TEXT NOT NULL,
  text TEXT NOT NULL,
  by TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  restores INTEGER,
  CONSTRAINT policy_pkey PRIMARY KEY (policy_id)
);
COMMENT ON COLUMN policy.policy_id IS 'the newest is in force';
COMMENT ON COLUMN policy.hash IS 'SHA-256 of the text, hexadecimal';
COMMENT ON COLUMN policy.by IS 'who applied it';
COMMENT ON COLUMN policy.restores IS 'the version whose text it put in force again; null: none';

-- A request without its content, on which a new policy can be tried.
CREATE TABLE request_sample (
  sample_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  tenant_id INTEGER NOT NULL,
  key_id TEXT NOT NULL,
  workflow TEXT NOT NULL,
  task TEXT NOT NULL,
  critical BOOLEAN NOT NULL,
  kind TEXT NOT NULL,
  model TEXT NOT NULL,
  endpoint TEXT NOT NULL,
  deadline DOUBLE PRECISION,
  requests INTEGER NOT NULL,
  est_tokens BIGINT NOT NULL,
  answer_tokens BIGINT NOT NULL,
  CONSTRAINT request_sample_pkey PRIMARY KEY (sample_id),
  CONSTRAINT request_sample_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
CREATE INDEX request_sample_at ON request_sample (at);
COMMENT ON COLUMN request_sample.model IS 'the model that was asked for';
COMMENT ON COLUMN request_sample.deadline IS 'seconds of its completion window; null: it had none';
COMMENT ON COLUMN request_sample.requests IS 'how many requests this sample stands for';
COMMENT ON COLUMN request_sample.est_tokens IS 'estimate, of one request: prompt and answer';
COMMENT ON COLUMN request_sample.answer_tokens IS 'of these, the answer';

-- Something that changed in the installation, for its history.
CREATE TABLE change (
  change_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  tenant_id INTEGER,
  data JSONB NOT NULL,
  CONSTRAINT change_pkey PRIMARY KEY (change_id),
  CONSTRAINT change_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
CREATE INDEX change_at ON change (at, change_id);
CREATE INDEX change_subject ON change (subject, at);
CREATE INDEX change_tenant ON change (tenant_id, at) WHERE tenant_id is not null;
COMMENT ON COLUMN change.kind IS 'what happened (app/changes/kinds.py)';
COMMENT ON COLUMN change.subject IS 'to whom: the name of an engine, a part, an endpoint or a budget';
COMMENT ON COLUMN change.tenant_id IS 'the account that it concerns; null: the installation';
COMMENT ON COLUMN change.data IS 'what is known about it, ids of batch, delivery and trace included';

-- What the installation has to do now and then, and how that stands.
CREATE TABLE duty (
  name TEXT NOT NULL,
  since TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  asked_at TIMESTAMP WITH TIME ZONE,
  began_at TIMESTAMP WITH TIME ZONE,
  succeeded_at TIMESTAMP WITH TIME ZONE,
  took_ms INTEGER,
  failed_at TIMESTAMP WITH TIME ZONE,
  error TEXT,
  CONSTRAINT duty_pkey PRIMARY KEY (name)
);
COMMENT ON COLUMN duty.name IS 'which one (app/duties/schedule.py)';
COMMENT ON COLUMN duty.since IS 'since when the installation has this duty';
COMMENT ON COLUMN duty.due_at IS 'when the leading steward asks for it next';
COMMENT ON COLUMN duty.asked_at IS
  'when it was asked for; null: not since it was last done, so that a message that comes twice does nothing';
COMMENT ON COLUMN duty.began_at IS 'when it last began';
COMMENT ON COLUMN duty.succeeded_at IS 'when it last succeeded';
COMMENT ON COLUMN duty.took_ms IS 'how long that took, in milliseconds';
COMMENT ON COLUMN duty.failed_at IS 'when it last failed';
COMMENT ON COLUMN duty.error IS 'why; null: it has succeeded since';
