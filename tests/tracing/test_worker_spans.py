"""Which spans a worker records: its chunks, and the items that failed, were retried, were slow, or are sampled."""

import pytest

from app import trace_context
from app.engines.outcome import Retry
from app.queue.types import Item, Kind, Lease, Result
from app.tracing import names, recorder, sampling
from testing.fakes.otlp_receiver import Receiver
from tests.gpu.conftest import world as _world
from tests.gpu.world import World
from workers.gpu.batch_share import BatchShares
from workers.gpu.chunk_span import ChunkSpan
from workers.gpu.open_chunk import OpenChunk

world = _world
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
DECLINED = TRACE[:-1] + "0"
SECRET = "a very private prompt"


async def test_a_chunk_links_to_its_submit_and_has_a_span_for_each_failed_item(
    world: World, collector: Receiver
) -> None:
    world.engine.script({"match": "bad", "mode": "status", "status": 400, "message": f"cannot take {SECRET}"})
    prompts = [f"{'bad' if seq in (3, 9) else 'good'} {seq} {SECRET}" for seq in range(12)]
    async with world.worker(trace_item_share=0.0):
        batch_id = await world.submit(prompts, chunk=6)
        async with world.database.durable() as conn:
            await conn.execute("update batch set traceparent = %s where batch_id = %s", (TRACE, batch_id))
        await world.finished(batch_id)
    recorder.close()
    [request_id] = (await world.fetch("select request_id from batch where batch_id = %s", batch_id))[0]
    chunks, items = collector.named(names.CHUNK), collector.named("chat")
    assert {span.attributes[names.ITEM] for span in items} == {3, 9}
    assert all(span.failed and span.attributes[names.ERROR] == "invalid_request" for span in items)
    assert {span.parent for span in items} <= {span.span_id for span in chunks}
    linked = [span for span in chunks if span.links]
    assert linked
    assert all(span.links == [(TRACE[3:35], TRACE[36:52])] for span in linked)
    assert all(span.trace_id != TRACE[3:35] for span in chunks)
    assert all(span.attributes[names.BATCH] == str(request_id) for span in chunks)
    assert sum(span.attributes[names.ITEMS_OK] for span in chunks) == 10
    assert not any(SECRET in repr(span) for span in collector.spans)


async def test_an_item_that_needed_a_second_try_has_a_span(world: World, collector: Receiver) -> None:
    world.engine.script({"match": "busy", "mode": "status", "status": 500, "message": "later", "times": 1})
    async with world.worker(trace_item_share=0.0):
        batch_id = await world.submit(["fine", "busy"])
        await world.finished(batch_id)
    recorder.close()
    [span] = collector.named("chat")
    assert (span.attributes[names.ITEM], span.attributes[names.STORY], span.failed) == (1, "retried", False)
    assert span.attributes[names.ATTEMPT] == 2


async def test_the_engine_gets_the_span_of_a_sampled_item_and_a_refusal_to_record_for_any_other(
    world: World, collector: Receiver
) -> None:
    share = 0.5
    async with world.worker(trace_item_share=share):
        batch_id = await world.submit([f"prompt {seq}" for seq in range(20)])
        await world.finished(batch_id)
    recorder.close()
    expected = {seq for seq in range(20) if sampling.chosen(f"{batch_id}/{seq}", share)}
    spans = collector.named("chat")
    assert {span.attributes[names.ITEM] for span in spans} == expected
    contexts = [trace_context.context_of(found) for found in world.engine.traces]
    assert {found.span_id for found in contexts if found and found.sampled} == {span.span_id for span in spans}
    assert sum(found is not None and not found.sampled for found in contexts) == 20 - len(expected)


async def test_without_an_endpoint_nothing_is_recorded_and_no_trace_is_made_up(world: World) -> None:
    async with world.worker():
        await world.finished(await world.submit(["one"]))
    assert world.engine.traces == [None]


async def test_an_item_that_goes_back_to_the_queue_has_a_span_while_its_batch_has_credit() -> None:
    kept = Kept()
    recorder.use(kept)
    try:
        spans, lease = BatchShares("engine-0", 1.0), Lease(1, 1, 1, 7, 1, 1, 0, 0, None, 1, 100)
        item = Item(0, "m", "/v1/chat/completions", b"{}", traceparent=TRACE)
        for _ in range(300):
            span = ChunkSpan.of(spans, lease, [item])
            assert span is not None
            span.header(item)
            span.sent_back(item, None, Retry("no room", busy=True), 1)
            span.closed(1, 0.0)
    finally:
        recorder.use(None)
    backs = [span for span in kept.spans if names.ITEM in span.attributes]
    assert {(span.attributes[names.STORY], span.error) for span in backs} == {("retried", "engine_busy")}
    assert len(backs) == sampling.FIRST_CREDIT - sampling.RESERVED
    assert len(kept.spans) == 2 * len(backs)


# ---------------------------------------------------------------- the bound


class Kept:
    """A sink that keeps spans."""

    def __init__(self) -> None:
        self.spans: list = []
        self.outcomes = recorder.no_spans()

    def add(self, span) -> None:
        self.spans.append(span)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    "in_chunk", [pytest.param(1, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.slow), 50]
)
@pytest.mark.parametrize(
    "failing", [pytest.param(0.0, marks=pytest.mark.slow), 0.002, pytest.param(0.3, marks=pytest.mark.slow), 1.0]
)
async def test_50_000_items_make_fewer_than_1500_spans_whatever_fails_and_each_failure_is_found(
    in_chunk: int, failing: float
) -> None:
    kept = Kept()
    recorder.use(kept)
    try:
        spans, failed = BatchShares("engine-0", 0.01), set()
        for lo in range(0, 50_000, in_chunk):
            seqs = range(lo, lo + in_chunk)
            failed |= {seq for seq in seqs if sampling.chosen(f"fails {seq}", failing)}
            _run(spans, seqs, failed)
        spans.close()
    finally:
        recorder.use(None)
    assert len(kept.spans) < 1500
    assert _told(kept.spans) == failed


def _run(spans: BatchShares, seqs: range, failed: set[int]) -> None:
    """Take a chunk through the worker's code, without a database and an engine."""
    lease = Lease(seqs[0], 1, 1, 7, 1, 1, seqs[0], seqs[-1], None, len(seqs), 100)
    items = [Item(seq, "m", "/v1/chat/completions", b"{}", traceparent=TRACE) for seq in seqs]
    chunk = OpenChunk.of(lease, items, 4, ChunkSpan.of(spans, lease, items))
    assert chunk.span is not None
    for item in items:
        chunk.span.header(item)
    results = [Result(seq, seq not in failed, 1, 5, 0, 5, b"{}", duration_ms=20.0) for seq in seqs]
    chunk.note_stored(results)
    chunk.span.closed(0, 0.1)


def _told(spans: list) -> set[int]:
    own = {span.attributes[names.ITEM] for span in spans if span.error and names.ITEM in span.attributes}
    return own | {seq for span in spans for seq in span.attributes.get(names.UNTOLD_ITEMS) or ()}


@pytest.mark.parametrize(
    ("header", "failing", "spans"), [(TRACE, False, 1), (TRACE, True, 2), (DECLINED, False, 0), (DECLINED, True, 2)]
)
async def test_a_single_request_has_a_chunk_span_if_it_is_traced_or_fails(
    header: str, failing: bool, spans: int
) -> None:
    kept = Kept()
    recorder.use(kept)
    try:
        shares, lease = BatchShares("engine-0", 0.0), Lease(1, 1, 1, 7, 1, 1, 0, 0, None, 1, 100)
        item = Item(0, "m", "/v1/chat/completions", b"{}", traceparent=header, kind=Kind.FLEX)
        span = ChunkSpan.of(shares, lease, [item])
        assert span is not None
        span.header(item)
        span.stored([Result(0, not failing, 1, 5, 0, 5, b"{}")])
        span.closed(0, 0.0)
    finally:
        recorder.use(None)
    assert len(kept.spans) == spans
