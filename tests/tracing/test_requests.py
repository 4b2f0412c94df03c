"""From a caller's request to its spans: synchronous requests through the gateway, submits, ends of batches, webhooks."""

import re
from collections.abc import AsyncIterator

import httpx
import orjson
import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.events import BatchData, EventKind, ItemData
from app.settings import Settings
from app.tracing import names, recorder
from app.webhooks import emitter
from app.webhooks.response_policy import Answer
from testing.fakes.engine import FakeEngine
from testing.fakes.otlp_receiver import Receiver
from tests.api import support
from tests.gateway.support import Registry
from tests.webhooks.support import MODEL, send_due, subscribe
from workers.notifier.delivery import Sender

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE_ID, CALLER = TRACE[3:35], TRACE[36:52]
CHAT = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "a very private prompt"}]}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


def _header(engine: FakeEngine) -> str:
    [found] = engine.traces
    assert found is not None
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_a_synchronous_request_has_a_span_in_its_callers_trace_and_the_engine_one_below_it(
    client: httpx.AsyncClient, engine: FakeEngine, collector: Receiver, stream: bool
) -> None:
    answer = await client.post("/v1/chat/completions", json=CHAT | {"stream": stream}, headers={"traceparent": TRACE})
    assert answer.status_code == 200
    assert answer.headers["x-slackwater-trace-id"] == TRACE_ID
    recorder.close()
    [span] = collector.named("chat")
    assert (span.trace_id, span.parent, span.failed) == (TRACE_ID, CALLER, False)
    assert _header(engine) == f"00-{TRACE_ID}-{span.span_id}-01"
    assert span.attributes[names.ENGINE] == "engine-0"
    assert span.moments == ["sent", "first token"][: 1 + stream]
    assert span.attributes.get(names.GEN_AI_OUTPUT_TOKENS, 0) > 0
    assert "private" not in repr(span)


async def test_a_request_without_a_trace_begins_one_that_its_answer_names(
    client: httpx.AsyncClient, engine: FakeEngine, collector: Receiver
) -> None:
    answer = await client.post("/v1/chat/completions", json=CHAT)
    recorder.close()
    [span] = collector.named("chat")
    assert (span.trace_id, span.parent) == (answer.headers["x-slackwater-trace-id"], "")
    assert re.fullmatch("[0-9a-f]{32}", span.trace_id)


async def test_a_caller_that_has_declined_has_no_span_and_its_engine_neither(
    client: httpx.AsyncClient, engine: FakeEngine, collector: Receiver
) -> None:
    engine.script({"mode": "junk", "body": "broken"})
    answer = await client.post("/v1/chat/completions", json=CHAT, headers={"traceparent": TRACE[:-1] + "0"})
    recorder.close()
    assert answer.status_code >= 500
    assert not collector.spans
    assert _header(engine).endswith("-00")


async def test_a_submit_is_the_origin_of_its_batch_and_of_its_end(
    client: httpx.AsyncClient, database: Database, collector: Receiver
) -> None:
    sent = await client.post(support.SUBMIT, json={"requests": [{"prompt": "a"}]}, headers={"traceparent": TRACE})
    request_id = sent.json()["result"]["request_id"]
    batch = f"{support.BATCHES}/{request_id}"
    assert (await client.get(batch)).json()["result"]["trace_id"] == TRACE_ID
    await client.post(f"{batch}/cancel")
    recorder.close()
    [submit], [end] = collector.named(names.SUBMIT), collector.named(names.END)
    assert (submit.trace_id, submit.parent) == (TRACE_ID, CALLER)
    assert (end.trace_id, end.parent) == (TRACE_ID, submit.span_id)
    assert submit.attributes[names.BATCH] == end.attributes[names.BATCH] == request_id
    async with database.durable() as conn:
        rows = await (await conn.execute("select kind, data from event order by event_id")).fetchall()
    told = {kind: orjson.loads(data)["traceparent"][36:52] for kind, data in rows}
    assert told == {"batch.queued": submit.span_id, "batch.cancelled": end.span_id}


class RecordingEgress:
    """Records the headers of a delivery instead of sending it."""

    def __init__(self, answer: Answer) -> None:
        self.headers: dict[str, str] = {}
        self._answer = answer

    async def post(self, url: str, headers: dict[str, str], body: bytes, hosts: object = None, **_: object) -> Answer:
        self.headers = headers
        return self._answer


@pytest.mark.parametrize("status", [200, 500])
async def test_an_attempt_at_a_webhook_links_to_the_end_of_its_batch_and_the_receiver_hangs_below_it(
    database: Database, settings: Settings, collector: Receiver, status: int
) -> None:
    data = BatchData(request_id="r", account_id="acme", traceparent=TRACE)
    async with database.durable() as conn:
        await subscribe(conn, settings, "https://receiver.example/hook?token=secret")
        await emitter.emit(conn, tenant_id=1, kind=EventKind.BATCH_SUCCEEDED, model=MODEL, batch_id=7, run=1, data=data)
    egress = RecordingEgress(Answer(5, status, None if status == 200 else "status"))
    await send_due(Sender(database, egress, secret_key(settings), settings), database)  # type: ignore[arg-type]
    recorder.close()
    [span] = collector.named(names.WEBHOOK)
    assert (span.trace_id, span.parent, span.links) == (TRACE_ID, CALLER, [(TRACE_ID, CALLER)])
    assert egress.headers["traceparent"] == f"00-{TRACE_ID}-{span.span_id}-01"
    assert span.failed == (status != 200)
    assert span.attributes[names.HTTP_STATUS] == status
    assert "secret" not in repr(span)


async def test_deliveries_of_item_events_have_spans_only_by_their_share(
    database: Database, settings: Settings, collector: Receiver
) -> None:
    data = ItemData(request_id="r", account_id="acme", traceparent=TRACE, item=0)
    async with database.durable() as conn:
        await subscribe(conn, settings, "https://receiver.example/hook", kinds=[EventKind.ITEM_FAILED])
        await emitter.emit(conn, tenant_id=1, kind=EventKind.ITEM_FAILED, model=MODEL, batch_id=7, run=1, data=data)
    egress = RecordingEgress(Answer(5, 200))
    without = settings.model_copy(update={"trace_item_share": 0.0})
    await send_due(Sender(database, egress, secret_key(settings), without), database)  # type: ignore[arg-type]
    recorder.close()
    assert egress.headers["traceparent"][:36] == TRACE[:36]
    assert not collector.spans
