"""Claims about what a worker measures of its items: their share of the engine's time, and how long answers took."""

import asyncio
from typing import Any

import pytest

from app import clock
from app.engines.outcome import Done, Usage
from app.engines.requests import UNFIT
from app.queue import settling
from app.queue.types import Item, Lease, Result
from tests.gpu.world import World
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.requests_in_engine import RequestsInEngine, SentRequest

LEASE = Lease(1, 1, 1, 1, 1, 1, 0, 1, None, 2, 0, 200)


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock, which a test sets."""
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


async def test_the_shares_of_all_requests_add_up_to_the_time_in_which_there_were_any(seconds: list[float]) -> None:
    ledger = RequestsInEngine()
    first, second, third = (asyncio.create_task(asyncio.sleep(0)) for _ in range(3))
    seconds[0] += 50  # nothing is there
    ledger.enter(first, SentRequest(1, None))
    seconds[0] += 4
    ledger.enter(second, SentRequest(1, None))
    seconds[0] += 6
    shares = [ledger.leave(first)]
    seconds[0] += 1
    shares.append(ledger.leave(second))
    seconds[0] += 50
    ledger.enter(third, SentRequest(1, None))
    seconds[0] += 2
    shares.append(ledger.leave(third))
    assert shares == [7, 4, 2]
    assert ledger.leave(third) == 0


async def test_a_chunk_has_the_times_of_stored_answers_and_the_engine_time_of_all_items(seconds: list[float]) -> None:
    items = [Item(seq, "m", "/v1/completions", b"{}") for seq in range(2)]
    chunk = OpenChunk.of(LEASE, items, 4)
    chunk.pending.clear()
    for item in items:
        progress = chunk.start(item, asyncio.create_task(asyncio.sleep(0)))
        progress.note_sent()
        seconds[0] += 0.010
        progress.note_token()
        seconds[0] += 0.100
        progress.note_token()
        progress.engine_seconds += 2.5
    chunk.settled(0, Done(b"{}", Usage(1, 0, 1)), 1)
    chunk.ended(0)
    chunk.ended(1)  # without an outcome: it goes back to the queue
    assert chunk.times.engine_ms == 5000
    assert chunk.times.durations == b""
    chunk.note_stored([*chunk.results, Result(1, False, 1, 0, 0, 0, b"{}", duration_ms=5.0)])
    assert chunk.times.first_tokens == bytes([23])  # 10 ms
    assert chunk.times.durations == bytes([53])  # 220 ms


@pytest.fixture
def booked(monkeypatch: pytest.MonkeyPatch) -> list[settling.UsageSum]:
    """What stewards book."""
    found: list[settling.UsageSum] = []
    settle = settling.settle

    async def noted(*arguments: Any, **options: Any) -> Any:
        settled, usage = await settle(*arguments, **options)
        found.extend(usage)
        return settled, usage

    monkeypatch.setattr(settling, "settle", noted)
    return found


async def test_what_a_worker_measures_is_in_the_usage_that_the_steward_books(
    world: World, booked: list[settling.UsageSum]
) -> None:
    async with world.worker():
        await world.finished(await world.submit(["hello"] * 6, chunk=3))
    assert sum(each.counts.ok for each in booked) == 6
    assert [sum(len(times) for times in each) for each in _times(booked)] == [6, 6]
    assert sum(each.counts.engine_ms for each in booked) > 0


async def test_an_invalid_line_is_no_request_of_the_model(world: World, booked: list[settling.UsageSum]) -> None:
    batch_id = await world.submit(["hello"] * 3, chunk=3)
    problem = b'{"line": 2, "message": "is bad", "param": null, "code": "bad"}'
    await world.fetch("update item_payload set endpoint = %s, body = %s where seq = 1 returning 1", UNFIT, problem)
    async with world.worker():
        await world.finished(batch_id)
    assert (sum(each.counts.requests for each in booked), sum(each.counts.ok for each in booked)) == (2, 2)


def _times(booked: list[settling.UsageSum]) -> tuple[list[bytes], list[bytes]]:
    return [each.first_tokens for each in booked], [each.durations for each in booked]
