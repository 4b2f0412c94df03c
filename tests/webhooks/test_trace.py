"""A webhook names the trace of the submit that it tells of."""

import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.webhooks import service
from app.webhooks.retry_policy import Answer
from tests.webhooks.support import MODEL, send_due, subscribe
from workers.notifier.delivery import Sender

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Ear:
    """Hears the headers of a delivery instead of sending it."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    async def post(self, url: str, headers: dict[str, str], body: bytes, hosts: object = None, **_: object) -> Answer:
        self.headers = headers
        return Answer(5, 200)


@pytest.mark.parametrize(("given", "told"), [(TRACE, TRACE[:36]), (None, None)])
async def test_a_delivery_carries_the_submits_trace_if_it_had_one(
    database: Database, settings: Settings, given: str | None, told: str | None
) -> None:
    names = {"request_id": "r", "account_id": "acme", "traceparent": given}
    async with database.durable() as conn:
        await subscribe(conn, settings, "https://receiver.example/hook")
        await service.emit(conn, tenant_id=1, kind="batch.succeeded", model=MODEL, batch_id=7, run=1, data=names)
    ear = Ear()
    await send_due(Sender(database, ear, secret_key(settings), settings), database)  # type: ignore[arg-type]
    assert "webhook-signature" in ear.headers
    assert (ear.headers.get("traceparent") or "")[:36] == (told or "")
