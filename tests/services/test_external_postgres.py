"""Claims about an external PostgreSQL server as database and broker, by TCP."""

from contextlib import suppress

import psycopg
import pytest

from app.settings import Settings
from tests.db.built_statements import built
from tests.db.written_statements import numbered, written
from tests.services.support import delivers

pytestmark = pytest.mark.slow


def test_an_event_is_delivered_over_pgmq_on_an_external_server(settings: Settings, external_postgres_url: str) -> None:
    delivers(settings.model_copy(update={"database_url": external_postgres_url}))


def test_an_external_server_knows_every_statement_that_the_embedded_one_knows(
    database_url: str, external_postgres_url: str
) -> None:
    """It may be older by years."""
    embedded = prepared(database_url)
    assert len(embedded) > 450
    assert embedded - prepared(external_postgres_url) == set()


def prepared(url: str) -> set[str]:
    """The names of the statements that a server takes as they are. Those whose callers fill them in are not among them."""
    found = set()
    with psycopg.connect(url, autocommit=True) as conn:
        for name, text in (*written(), *built()):
            with suppress(psycopg.Error):
                conn.execute(f"prepare looked_at as {numbered(text)}".encode())
                conn.execute("deallocate looked_at")
                found.add(name)
    return found
