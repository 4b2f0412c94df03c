"""Claims about `traceparent`: a webhook has the trace of the submit that caused it."""

import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.events import BatchData, EventKind
from app.settings import Settings
from app.webhooks import emitter
from app.webhooks.response_policy import Answer
from tests.webhooks.support import MODEL, send_due, subscribe
from workers.notifier.delivery import Sender

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class RecordingEgress:
    """Records the headers of a delivery instead of sending it."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    async def post(self, url: str, headers: dict[str, str], body: bytes, hosts: object = None, **_: object) -> Answer:
        self.headers = headers
        return Answer(5, 200)


@pytest.mark.parametrize(("given", "told"), [(TRACE, TRACE[:36]), (None, None)])
async def test_a_delivery_carries_the_trace_of_the_submit_if_it_had_one(
    database: Database, settings: Settings, given: str | None, told: str | None
) -> None:
    data = BatchData(request_id="r", account_id="acme", traceparent=given)
    async with database.durable() as conn:
        await subscribe(conn, settings, "https://receiver.example/hook")
        await emitter.emit(conn, tenant_id=1, kind=EventKind.BATCH_SUCCEEDED, model=MODEL, batch_id=7, run=1, data=data)
    egress = RecordingEgress()
    await send_due(Sender(database, egress, secret_key(settings), settings), database)  # type: ignore[arg-type]
    assert "webhook-signature" in egress.headers
    assert (egress.headers.get("traceparent") or "")[:36] == (told or "")
