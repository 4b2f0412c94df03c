"""Claims about errors of the database that pass: they cost a notifier a moment, and no receiver a second request."""

from types import ModuleType
from typing import Any

import psycopg
import pytest
from psycopg import errors

from app import crypto
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import claims, delivery_outcomes
from app.webhooks.egress import Egress
from tests.webhooks.support import emit, receiving, send_due, subscribe
from workers.notifier.delivery import Sender


@pytest.mark.parametrize("error", [psycopg.OperationalError, errors.ForeignKeyViolation, errors.ReadOnlySqlTransaction])
async def test_a_claim_and_an_outcome_that_the_database_refused_once_are_made_again(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    met: list[str] = []

    def failing_once(module: ModuleType, verb: str) -> None:
        works = getattr(module, verb)

        async def fails(*arguments: Any, **named: Any) -> Any:
            if verb not in met:
                met.append(verb)
                raise error
            return await works(*arguments, **named)

        monkeypatch.setattr(module, verb, fails)

    with receiving() as receiver:
        async with database.transaction() as conn:
            endpoint, _ = await subscribe(conn, settings, receiver.url)
            await emit(conn, 1)
        failing_once(claims, "claim")
        failing_once(delivery_outcomes, "record")
        async with Egress.of(settings) as egress:
            sender = Sender(database, egress, crypto.secret_key(settings), settings)
            assert await sender._claim(endpoint.endpoint_id) == []
            await send_due(sender, database)
        assert (met, len(receiver.requests)) == (["claim", "record"], 1)
    async with database.relaxed() as conn:
        assert await (await conn.execute("select state, attempts from delivery")).fetchall() == [("delivered", 1)]
