"""Plumbing to Postgres: metadata, pools, the embedded server, migrations."""
