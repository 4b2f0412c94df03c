-- About the schema itself. Alembic keeps the revision in alembic_version.

-- Which code may use this database.
CREATE TABLE schema_floor (
  one BOOLEAN NOT NULL CONSTRAINT schema_floor_one CHECK (one),
  revision TEXT NOT NULL,
  baseline TEXT NOT NULL,
  CONSTRAINT schema_floor_pkey PRIMARY KEY (one)
);
COMMENT ON COLUMN schema_floor.one IS 'always true: one row';
COMMENT ON COLUMN schema_floor.revision IS 'the oldest revision whose code may use this database';
COMMENT ON COLUMN schema_floor.baseline IS 'digest of the baseline that made this database';
