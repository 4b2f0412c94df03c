"""One trace through a whole installation: caller, API, worker, engine, steward, notifier, receiver."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.tracing import names
from testing.fakes.otlp_receiver import Receiver, Seen, receiver
from testing.waiting import wait_for
from tests.system.stack import Stack, running
from tests.system.test_kill import Inbox

pytestmark = pytest.mark.slow

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE_ID, CALLER = TRACE[3:35], TRACE[36:52]
ITEMS, BAD = 400, {7, 111, 250}


@dataclass
class Traced:
    """An installation that has run one batch, and its collector."""

    stack: Stack
    collector: Receiver
    request_id: str

    def spans(self, name: str) -> list[Seen]:
        """The spans of this name that are about the batch."""
        return [span for span in self.collector.named(name) if span.attributes.get(names.BATCH) == self.request_id]


@pytest.fixture(scope="module")
def traced() -> Iterator[Traced]:
    with ExitStack() as around:
        collector = around.enter_context(receiver())
        stack = around.enter_context(running(otlp_endpoint=collector.url, log_format="json"))
        inbox = Inbox()
        inbox.secret = stack.subscribe(inbox.url)
        items: list[dict[str, Any]] = [{"prompt": f"item {seq}", "max_tokens": 4} for seq in range(ITEMS)]
        for seq in BAD:
            items[seq]["prompt"] = f"bad {seq}"
        refusal = {"match": "bad", "mode": "status", "status": 400, "message": "cannot take this"}
        httpx.post(f"http://127.0.0.1:{stack.engine_port}/_script", json=[refusal], trust_env=False)
        stack.client.headers["traceparent"] = TRACE
        request_id = stack.submit(items)
        wait_for(lambda: stack.poll(request_id), "the batch")
        wait_for(lambda: len(inbox.of(request_id)) >= 2, "the webhooks")
        found = Traced(stack, collector, request_id)
        wait_for(lambda: len(found.spans(names.WEBHOOK)) >= 2, "the webhooks' spans")
        for name in (names.SUBMIT, names.END):  # each process sends its spans when it sees fit
            wait_for(lambda name=name: found.spans(name), name)  # type: ignore[misc]
        wait_for(lambda: sum(_done(span) for span in found.spans(names.CHUNK)) == ITEMS, "the chunks' spans")
        yield found


def _done(span: Seen) -> int:
    return int(span.attributes[names.ITEMS_OK]) + int(span.attributes[names.ITEMS_FAILED])


def test_the_submit_its_end_and_its_webhooks_are_one_trace_below_the_callers_span(traced: Traced) -> None:
    [submit], [end] = traced.spans(names.SUBMIT), traced.spans(names.END)
    webhooks = {span.attributes[names.EVENT]: span for span in traced.spans(names.WEBHOOK)}
    assert {span.trace_id for span in (submit, end, *webhooks.values())} == {TRACE_ID}
    assert (submit.parent, submit.service) == (CALLER, "slackwater-api")
    assert (end.parent, end.service) == (submit.span_id, "slackwater-steward")
    assert webhooks["batch.queued"].links == [(TRACE_ID, submit.span_id)]
    assert webhooks["batch.succeeded"].links == [(TRACE_ID, end.span_id)]
    assert {span.service for span in webhooks.values()} == {"slackwater-notifier"}


def test_the_chunks_have_traces_of_their_own_that_link_to_the_submit(traced: Traced) -> None:
    [submit], chunks = traced.spans(names.SUBMIT), traced.spans(names.CHUNK)
    assert {tuple(span.links) for span in chunks} == {((TRACE_ID, submit.span_id),)}
    assert len({span.trace_id for span in chunks} | {TRACE_ID}) == len(chunks) + 1
    assert {span.service for span in chunks} == {"slackwater-gpu"}


def test_each_failed_item_is_found_below_its_chunk(traced: Traced) -> None:
    assert traced.collector.failed_items() == {(traced.request_id, seq) for seq in BAD}
    items = traced.spans("chat")
    assert len(items) < len(BAD) + 30
    assert {span.parent for span in items} <= {span.span_id for span in traced.spans(names.CHUNK)}


def test_log_lines_of_steward_and_notifier_name_the_trace(traced: Traced) -> None:
    logs = traced.stack.settings.data_dir / "logs"
    events = {}
    for part in ("steward", "notifier"):
        lines = [json.loads(line) for line in (logs / f"{part}.log").read_text().splitlines() if line.startswith("{")]
        events[part] = {line["event"] for line in lines if line.get("trace_id") == TRACE_ID}
    assert events == {"steward": {"batch.completed"}, "notifier": {"delivery.attempted"}}


def test_a_kill_of_the_collector_harms_neither_batches_nor_callers(traced: Traced) -> None:
    stack = traced.stack
    traced.collector.status = 503
    request_id = stack.submit([{"prompt": f"later {seq}", "max_tokens": 4} for seq in range(50)])
    result = wait_for(lambda: stack.poll(request_id), "the batch without a collector")
    assert result["usage"]["total_tokens"] > 0
    answer = stack.client.post(
        "/v1/chat/completions", json={"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert answer.status_code == 200
    assert answer.headers["x-slackwater-trace-id"] == TRACE_ID
    assert "slackwater_trace_spans_total{outcome=" in stack.client.get("/metrics").text
