"""Claims about what a worker does for a completion window that comes to its end."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from app.db.pool import Connection
from app.queue import service as queue
from app.queue.types import Lease
from app.settings import Settings
from tests.gpu.world import World
from workers.gpu.claimer import Claimer
from workers.gpu.open_chunk import OpenChunks


class Hungry:
    """As much of an `Admission` as a claim needs: it always wants more."""

    hungry = True

    def started_within(self, seconds: float) -> int:
        return 0


class Connections:
    """As much of a `Database`."""

    def relaxed(self) -> nullcontext[None]:
        return nullcontext()


async def test_every_fourth_claim_looks_for_a_near_deadline_before_all_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    async def claim(conn: Connection, pool: int, worker: int, *, chunks: int = 1, urgent: bool = False) -> list[Lease]:
        asked.append(urgent)
        return []

    monkeypatch.setattr(queue, "claim", claim)
    admission: Any = Hungry()
    database: Any = Connections()
    claimer = Claimer(settings, database, OpenChunks(), admission, lambda *_: None)
    claimer.join(1, 1)
    for _ in range(8):
        await claimer._claim()
    assert asked == 2 * [False, False, False, True, False]


async def heartbeats(world: World) -> None:
    """Three more have been answered, at least two of them as the rows are now."""
    seen: set[object] = set()
    while len(seen) < 4:
        seen.update(await world.fetch("select renewed_at from worker"))
        await asyncio.sleep(0.02)


async def test_a_worker_hears_with_a_heartbeat_how_little_time_is_left_and_permits_longer_steps(world: World) -> None:
    near = """insert into pool_status (pool_id, at, workers, engines, slack, scarce, deadlines, tokens)
      values (%s, now() + interval '1 hour', 1, 1, 0.1, false, '{}', '{}') returning 1"""
    await world.fetch(near, world.pool)
    world.engine.script({"mode": "hang"})
    await world.submit(["hi"])
    async with world.worker(heartbeat_seconds=0.2, drain_seconds=0) as running:
        await world.until("exists (select from engine where batch_in_flight > 0)")
        await heartbeats(world)
        assert running.worker._control.urgency == pytest.approx(2 / 3)
        await world.until("exists (select from engine where reason = 'deadline_ramp')")
        await world.fetch("update pool_status set slack = null returning 1")
        await heartbeats(world)
        assert running.worker._control.urgency == 0
