"""Claims about an engine that an operator drains, with a worker and a gateway that obey."""

from typing import Any, Literal

from app.engines import overview as engine_overview
from app.engines import service as engines
from app.engines.engine_report import DRAINING
from app.engines.overview import EngineOverview
from testing.waiting import eventually
from tests.clock import Clock
from tests.gpu.world import World
from tests.queue import support
from workers.gpu.ending import Ending

Verb = Literal["drain", "drain now", "undrain"]


async def change(world: World, verb: Verb) -> bool:
    async with world.database.durable() as conn:
        return await engines.change_intake(conn, world.settings.engine_name, verb)


async def seen(world: World) -> EngineOverview:
    async with world.database.relaxed() as conn:
        return (await engine_overview.overview(conn))[0]


async def drained(world: World) -> EngineOverview:
    """The engine once it is drained."""
    return await eventually(lambda: seen(world), until=lambda found: found.drained(0))


async def in_engine(world: World, requests: int) -> None:
    await eventually(lambda: world.engine.running >= requests)


async def counts(world: World, batch: int) -> tuple[Any, ...]:
    row: tuple[Any, ...] = (await world.fetch("select count(*), sum(ok) from item_result where batch_id = %s", batch))[
        0
    ]
    return row


async def test_a_drain_lets_what_runs_end_and_hands_back_the_rest(world: World, clock: Clock) -> None:
    world.engine.script({"match": "slow", "mode": "slow", "seconds": 3})
    batch = await world.submit([f"slow {n}" for n in range(12)], chunk=12)
    async with world.worker(lease_seconds=60, batch_max_in_flight=4):
        await in_engine(world, 4)
        assert await change(world, "drain")
        await world.until(f"exists (select from engine where reason = '{DRAINING}')")
        await clock.sleep(3)
        found = await drained(world)
        assert (found.reason, found.allowance, found.leased, found.state) == (DRAINING, 0, 0, "ready")
        assert await counts(world, batch) == (4, 4)
        assert await world.fetch("select n, attempt from chunk") == [(8, 0)]
        world.engine.script()
        await clock.sleep(3 * world.settings.heartbeat_seconds)
        assert sum(world.engine.count.values()) == 4
        assert await change(world, "undrain")
        await world.finished(batch)
    assert await counts(world, batch) == (12, 12)
    assert max(world.engine.count.values()) == 1


async def test_a_drain_now_hands_back_what_is_in_flight_at_once(world: World) -> None:
    world.engine.script({"match": "hangs", "mode": "hang"})
    batch = await world.submit([f"hangs {n}" for n in range(4)])
    async with world.worker(request_timeout_seconds=60):
        await in_engine(world, 4)
        assert await change(world, "drain")
        assert await change(world, "drain now")
        await drained(world)
        assert world.engine.aborted == 4
        assert await counts(world, batch) == (0, None)
        world.engine.script()
        assert await change(world, "undrain")
        await world.finished(batch)
    assert await world.fetch("select distinct attempt from item_result") == [(1,)]  # nobody is charged for it


async def test_a_drained_engine_stays_drained_when_its_worker_starts_again(world: World, clock: Clock) -> None:
    async with world.worker(lease_seconds=60):
        await world.until("exists (select from engine where state = 'ready')")
        await change(world, "drain")
        await drained(world)
    batch = await world.submit(["waits"])
    async with world.worker(lease_seconds=60):
        stays = f"exists (select from engine where state = 'ready' and reason = '{DRAINING}')"
        await world.until(f"{stays} or exists (select from item_result)")
        await clock.sleep(3 * world.settings.heartbeat_seconds)
        assert not world.engine.count
        await change(world, "undrain")
        await world.finished(batch)


async def test_an_engine_is_not_drained_before_its_worker_and_every_gateway_have_heard_of_it(world: World) -> None:
    async with world.worker():
        await world.until("exists (select from engine where state = 'ready')")
        await change(world, "drain")
        assert not (await seen(world)).drained(0)
        assert not (await drained(world)).drained(3600)
    await world.fetch("update engine set reason = 'open' returning 1")
    assert (await seen(world)).drained(0)  # nobody controls it, so nothing is in flight


async def test_a_worker_that_lost_its_engine_hears_nothing_and_changes_nothing(world: World) -> None:
    async with world.worker():
        await world.until("exists (select from engine where state = 'ready')")
        [(engine_id,)] = await world.fetch("select engine_id from engine")
        async with world.database.durable() as conn:
            said = await support.report_engine(conn, engine_id, -1, ready=False, reason="x", allowance=0)
        assert said is None


async def test_done_before_is_done_and_an_unknown_engine_is_told_apart(world: World) -> None:
    async with world.worker():
        await world.until("exists (select from engine where state = 'ready')")
    for verb, intake in (("drain now", "returning"), ("drain", "returning"), ("undrain", "open"), ("undrain", "open")):
        assert await change(world, verb)  # type: ignore[arg-type]
        assert (await seen(world)).intake == intake
    async with world.database.durable() as conn:
        assert not await engines.change_intake(conn, "nobody", "drain")


def test_a_second_signal_hands_back_what_the_first_lets_end() -> None:
    ending = Ending()
    ending.signal()
    assert (ending.finishing.is_set(), ending.returning.is_set()) == (True, False)
    ending.signal()
    assert ending.returning.is_set()
