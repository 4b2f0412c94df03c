"""Claims about an external PostgreSQL server as database and broker, by TCP."""

import pytest

from app.db import migrate
from app.settings import Settings
from tests.services.support import delivers

pytestmark = pytest.mark.services


def test_an_event_is_delivered_over_pgmq_on_an_external_server(settings: Settings, external_postgres_url: str) -> None:
    assert migrate.drift(external_postgres_url) == []
    delivers(settings.model_copy(update={"database_url": external_postgres_url}))
