"""The puller's own account: whatever ends a request, it is no longer in flight."""

import asyncio
from typing import cast

from app.db.pool import Database
from app.engines.client import EngineClient
from app.engines.outcome import Done, Settled, Usage
from app.engines.requests import COMPLETIONS, Target
from app.queue.types import Item, Lease
from app.settings import Settings
from testing.waiting import eventually
from workers.gpu.body_store import BodyStore
from workers.gpu.item_runner import ItemRunner
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.puller import Puller
from workers.gpu.requests_in_engine import ItemProgress

LEASE = Lease(1, 1, 1, 1, 1, 1, 0, 1, None, 2, 0, 200)
ITEMS = [Item(seq, "m", "/v1/completions", None, b'{"prompt": "x"}') for seq in range(2)]


async def test_a_request_aborted_before_its_first_step_is_not_in_flight_for_ever(settings: Settings) -> None:
    client = EngineClient("http://127.0.0.1:1", timeout_seconds=1)
    runner = ItemRunner(client, Target("m", 1, 100), b"", 1, cast(BodyStore, None))
    puller = Puller(settings, cast(Database, None), runner, lambda reason: None)
    chunk = OpenChunk.of(LEASE, ITEMS, 4)
    for item in ITEMS:
        puller._start(chunk, item)
    puller._chunks[1] = chunk
    assert puller.in_flight == 2
    chunk.abort()
    await asyncio.sleep(0.01)
    assert puller.in_flight == 0


class Counting:
    """An engine that answers at once."""

    sent = 0

    async def complete(self, *_: object, **__: object) -> Done:
        self.sent += 1
        return Done(b"{}", Usage())


async def test_nothing_is_sent_while_the_workers_lease_does_not_hold() -> None:
    engine, holds, asked = Counting(), False, 0

    def may_send() -> bool:
        nonlocal asked
        asked += 1
        return holds

    target, store = Target("m", 1, 100), cast(BodyStore, None)
    runner = ItemRunner(cast(EngineClient, engine), target, b"", 1, store, continues=False, may_send=may_send)
    runner.gate.set()
    task = asyncio.create_task(_run(runner))
    await eventually(lambda: asked >= 3 or engine.sent)
    assert engine.sent == 0
    holds = True
    assert await task == (Done(b"{}", Usage()), 1)


async def _run(runner: ItemRunner) -> tuple[Settled, int]:
    task = asyncio.current_task()
    assert task is not None
    return await runner.run(task, ItemProgress(Item(0, "m", COMPLETIONS, b'{"prompt": "x"}')), 1)
