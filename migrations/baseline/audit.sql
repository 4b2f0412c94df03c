-- The audit log of the whole installation: rows, the seals that chain them, and signed checkpoints.
--
-- No foreign keys: a row outlives the session, the account and the object that it names.

-- What somebody did.
CREATE TABLE audit (
  audit_id BIGINT GENERATED ALWAYS AS IDENTITY,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  account TEXT,
  act TEXT NOT NULL,
  target TEXT NOT NULL,
  body TEXT NOT NULL,
  CONSTRAINT audit_pkey PRIMARY KEY (audit_id)
);
CREATE INDEX audit_account ON audit (account, audit_id);
CREATE INDEX audit_target ON audit (target, audit_id);
COMMENT ON COLUMN audit.account IS 'whose object it was; null: the installation''s';
COMMENT ON COLUMN audit.act IS 'for example policy.apply, key.revoke, item.reveal';
COMMENT ON COLUMN audit.target IS 'id of the object';
COMMENT ON COLUMN audit.body IS 'the whole record as canonical JSON, which the seal covers';

-- A row that is not sealed yet.
CREATE TABLE audit_pending (
  audit_id BIGINT NOT NULL,
  CONSTRAINT audit_pending_pkey PRIMARY KEY (audit_id)
);
COMMENT ON COLUMN audit_pending.audit_id IS 'a row that is not sealed yet';

-- The place of a row in its chain. Both keys are unique, so two stewards that seal at once cannot fork a chain: one of them is refused.
CREATE TABLE audit_seal (
  account TEXT NOT NULL,
  seq BIGINT NOT NULL,
  audit_id BIGINT NOT NULL,
  hash BYTEA NOT NULL,
  CONSTRAINT audit_seal_pkey PRIMARY KEY (account, seq),
  CONSTRAINT audit_seal_audit_id_key UNIQUE (audit_id)
);
COMMENT ON COLUMN audit_seal.account IS 'the chain; empty: the installation''s';
COMMENT ON COLUMN audit_seal.seq IS 'place in the chain, from 1';
COMMENT ON COLUMN audit_seal.hash IS 'SHA-256 of the hash before, seq (8 bytes, big-endian) and body';

-- A signed end of a chain.
CREATE TABLE audit_checkpoint (
  account TEXT NOT NULL,
  seq BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  cut BOOLEAN NOT NULL,
  body TEXT NOT NULL,
  signature BYTEA NOT NULL,
  CONSTRAINT audit_checkpoint_pkey PRIMARY KEY (account, seq, at)
);
COMMENT ON COLUMN audit_checkpoint.seq IS 'the newest sealed row that it covers';
COMMENT ON COLUMN audit_checkpoint.cut IS 'whether the rows up to seq may be deleted';
COMMENT ON COLUMN audit_checkpoint.body IS 'canonical JSON, also in the object store below audit/';
COMMENT ON COLUMN audit_checkpoint.signature IS 'Ed25519, of the body';

-- Rows are only added. Who holds a checkpoint that says so may cut the rows up to it, and nothing else.
CREATE FUNCTION audit_is_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% is only added to', TG_TABLE_NAME; END $$;
CREATE FUNCTION audit_cut() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE covered BOOLEAN;
BEGIN
  CASE TG_TABLE_NAME
  WHEN 'audit' THEN covered := EXISTS (SELECT FROM audit_seal s JOIN audit_checkpoint c USING (account)
    WHERE s.audit_id = OLD.audit_id AND c.cut AND c.seq >= s.seq);
  WHEN 'audit_seal' THEN covered := EXISTS (SELECT FROM audit_checkpoint c
    WHERE c.account = OLD.account AND c.cut AND c.seq >= OLD.seq);
  ELSE covered := EXISTS (SELECT FROM audit_checkpoint c WHERE c.account = OLD.account AND c.cut AND c.seq > OLD.seq);
  END CASE;
  IF covered THEN RETURN OLD; END IF;
  RAISE EXCEPTION '% is only added to', TG_TABLE_NAME;
END $$;
CREATE TRIGGER audit_is_final BEFORE UPDATE OR TRUNCATE ON audit
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_final();
CREATE TRIGGER audit_cut BEFORE DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_cut();
CREATE TRIGGER audit_seal_is_final BEFORE UPDATE OR TRUNCATE ON audit_seal
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_final();
CREATE TRIGGER audit_seal_cut BEFORE DELETE ON audit_seal FOR EACH ROW EXECUTE FUNCTION audit_cut();
CREATE TRIGGER audit_checkpoint_is_final BEFORE UPDATE OR TRUNCATE ON audit_checkpoint
  FOR EACH STATEMENT EXECUTE FUNCTION audit_is_final();
CREATE TRIGGER audit_checkpoint_cut BEFORE DELETE ON audit_checkpoint FOR EACH ROW EXECUTE FUNCTION audit_cut();
REVOKE UPDATE, TRUNCATE ON audit, audit_seal, audit_checkpoint FROM PUBLIC, CURRENT_USER;
