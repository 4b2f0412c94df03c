-- Accounts: tenants, their API keys, their quotas, and the name of the key that wraps their data keys.

-- An account.
CREATE TABLE tenant (
  tenant_id SERIAL NOT NULL,
  account_id TEXT NOT NULL,
  name TEXT NOT NULL,
  weight DOUBLE PRECISION DEFAULT 1 NOT NULL CONSTRAINT tenant_weight_positive CHECK (weight > 0),
  max_inflight_tokens BIGINT DEFAULT 1000000000 NOT NULL,
  retention_days INTEGER CONSTRAINT tenant_retention_positive CHECK (retention_days > 0),
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  webhook_hosts TEXT[],
  state TEXT DEFAULT 'active' NOT NULL CONSTRAINT tenant_state CHECK (state in ('active', 'closing')),
  has_quota BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT tenant_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT tenant_account_id_key UNIQUE (account_id)
);
COMMENT ON COLUMN tenant.tenant_id IS 'the id of a deleted account is never used again';
COMMENT ON COLUMN tenant.account_id IS 'the account in a Workers AI URL';
COMMENT ON COLUMN tenant.retention_days IS 'how long its batches are kept at least; null: as in the settings';
COMMENT ON COLUMN tenant.webhook_hosts IS 'the only hosts that its webhooks may go to; null: any that the settings allow';
COMMENT ON COLUMN tenant.has_quota IS 'whether it has a row in quota, so that the submits of others need not look';

-- An API key. Only its keyed hash is kept.
CREATE TABLE api_key (
  key_id TEXT NOT NULL,
  tenant_id INTEGER NOT NULL,
  secret_hash BYTEA NOT NULL,
  name TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  last_used_at TIMESTAMP WITH TIME ZONE,
  expires_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  requests_per_minute INTEGER CONSTRAINT api_key_requests_positive CHECK (requests_per_minute > 0),
  tokens_per_minute BIGINT CONSTRAINT api_key_tokens_positive CHECK (tokens_per_minute > 0),
  pins TEXT[],
  role TEXT DEFAULT 'submitter' NOT NULL CONSTRAINT api_key_role CHECK (role in ('viewer', 'submitter', 'admin')),
  models TEXT[],
  endpoints TEXT[],
  networks CIDR[],
  restore BOOLEAN DEFAULT false NOT NULL,
  created_by TEXT,
  master_key TEXT,
  rotation INTEGER DEFAULT 0 NOT NULL,
  old_secret_hash BYTEA,
  old_until TIMESTAMP WITH TIME ZONE,
  CONSTRAINT api_key_pkey PRIMARY KEY (key_id),
  CONSTRAINT api_key_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id)
);
COMMENT ON COLUMN api_key.secret_hash IS 'HMAC-SHA256 under the pepper';
COMMENT ON COLUMN api_key.last_used_at IS 'coarse: written at most once a minute';
COMMENT ON COLUMN api_key.requests_per_minute IS 'limit of synchronous requests; null: as in the settings';
COMMENT ON COLUMN api_key.tokens_per_minute IS 'limit of estimated tokens of synchronous requests; null: as in the settings';
COMMENT ON COLUMN api_key.pins IS 'labels that every request of the key gets, as name=value';
COMMENT ON COLUMN api_key.role IS 'what it may do in its account';
COMMENT ON COLUMN api_key.models IS 'the only models that its requests may name; null: any';
COMMENT ON COLUMN api_key.endpoints IS 'the only routes of engines that its requests may use; null: any';
COMMENT ON COLUMN api_key.networks IS 'the only networks that it may be used from; null: any';
COMMENT ON COLUMN api_key.restore IS 'whether it reads what redaction has replaced';
COMMENT ON COLUMN api_key.created_by IS 'who made it; null: not known';
COMMENT ON COLUMN api_key.master_key IS 'id of the master key whose pepper secret_hash has; null: not known';
COMMENT ON COLUMN api_key.rotation IS 'how often its secret was changed';
COMMENT ON COLUMN api_key.old_secret_hash IS 'of the secret before the last rotation';
COMMENT ON COLUMN api_key.old_until IS 'until when the old secret works';

-- What a key has used in the current minute, for its rate limits.
CREATE TABLE key_usage (
  key_id TEXT NOT NULL,
  minute TIMESTAMP WITH TIME ZONE NOT NULL,
  requests INTEGER NOT NULL,
  tokens BIGINT NOT NULL,
  CONSTRAINT key_usage_pkey PRIMARY KEY (key_id),
  CONSTRAINT key_usage_key_id_fkey FOREIGN KEY (key_id) REFERENCES api_key (key_id)
) WITH (fillfactor = 50);
COMMENT ON COLUMN key_usage.minute IS 'the minute to which the counts belong';
COMMENT ON COLUMN key_usage.tokens IS 'estimated tokens of prompts and answers';

-- What an account may have at most. What is used of it is counted where it lies, so no counter can drift.
CREATE TABLE quota (
  tenant_id INTEGER NOT NULL,
  open_batches BIGINT,
  open_items BIGINT,
  queued_tokens BIGINT,
  stored_bytes BIGINT,
  CONSTRAINT quota_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT quota_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN quota.open_batches IS 'batches that are not final; null: no limit';
COMMENT ON COLUMN quota.open_items IS 'items without a result of these batches; null: no limit';
COMMENT ON COLUMN quota.queued_tokens IS 'estimated tokens of these items; null: no limit';
COMMENT ON COLUMN quota.stored_bytes IS 'uploaded files, and the requests of all its batches; null: no limit';

-- When an account was last refused for a quota.
CREATE TABLE quota_reached (
  tenant_id INTEGER NOT NULL,
  quota TEXT NOT NULL,
  hour TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT quota_reached_pkey PRIMARY KEY (tenant_id, quota),
  CONSTRAINT quota_reached_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN quota_reached.quota IS 'name of the column in quota';
COMMENT ON COLUMN quota_reached.hour IS 'in which the event was written last';

-- The key of an account at the key provider. Its name is random, so that two installations can use one provider.
CREATE TABLE account_kek (
  tenant_id INTEGER NOT NULL,
  kek TEXT NOT NULL,
  retired TEXT,
  CONSTRAINT account_kek_pkey PRIMARY KEY (tenant_id),
  CONSTRAINT account_kek_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenant (tenant_id) ON DELETE CASCADE
);
COMMENT ON COLUMN account_kek.kek IS 'name of the key at the key provider that wraps new data keys';
COMMENT ON COLUMN account_kek.retired IS 'the one before it, which a rotation has not destroyed yet';
