"""Claims about migrations on a database that is in use."""

import psycopg

from app.db import embedded, migrate
from app.settings import Settings

_OF_CHUNKS = """
select (select convalidated from pg_constraint where conname = 'chunk_state'),
       (select count(*) from pg_indexes where indexname in ('chunk_unfunded', 'chunk_funded'))"""


def test_the_migration_that_locks_the_chunks_for_budgets_does_not_scan_them_meanwhile(
    server_settings: Settings,
) -> None:
    """The constraint is checked and the indexes are built by a later migration, which is a transaction of its own."""
    admin = embedded.database_url(server_settings)
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute("create database upgraded")
    url = admin.replace("/postgres?", "/upgraded?")
    migrate.upgrade(url, "0026")
    with psycopg.connect(url) as conn:
        assert conn.execute(_OF_CHUNKS).fetchone() == (False, 0)
    migrate.upgrade(url)
    with psycopg.connect(url) as conn:
        assert conn.execute(_OF_CHUNKS).fetchone() == (True, 2)
    assert migrate.drift(url) == []
