"""Nobody says how many requests an attached engine runs at once: it is found out, and ours hardly wait in it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from app import clock
from app.states import CHUNK
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.gpu.world import World
from workers.engine.control_page import Report, Weights
from workers.engine.page_folder import OwnPage

SLOTS = 16
ITEMS = [f"question {n}." for n in range(300)]


@asynccontextmanager
async def small(world: World) -> AsyncIterator[World]:
    async with FakeEngine(slots=SLOTS) as engine:
        engine.token_seconds, engine.answer_tokens = 0.02, 20
        yield replace(world, engine=engine, settings=world.settings.model_copy(update={"engine_url": engine.url}))


async def problems(world: World) -> dict[str, str]:
    [(found,)] = await world.fetch("select problems from engine where url = %s", world.engine.url)
    return {problem["code"]: problem["message"] for problem in found}


async def busy_until(world: World, holds: Callable[[], bool]) -> None:
    """Gives the engine more to do as long as that takes: a slow machine sees less of each request."""

    async def held() -> bool:
        if not await world.fetch(f"select from chunk where {CHUNK.guard('claim')} limit 1"):
            await world.submit(ITEMS[:100], chunk=50)
        return holds()

    await eventually(held)


async def test_of_three_hundred_requests_few_wait_in_an_engine_of_sixteen_slots(world: World) -> None:
    async with small(world) as world:
        batch = await world.submit(ITEMS, chunk=50)
        async with world.worker(batch_max_in_flight=0) as running:
            control = running.worker._control
            await busy_until(world, lambda: control.search.sure)
            assert control.search.found == SLOTS
            await world.until(
                "exists (select from engine where strpos(problems::text, 'to run 16 while others waited') > 0)"
            )
            await world.finished(batch)
    assert world.engine.peak == SLOTS
    assert world.engine.longest_queue <= SLOTS
    assert {ok for ok, _, _ in (await world.results(batch)).values()} == {1}


async def test_slots_that_are_named_are_never_exceeded(world: World) -> None:
    async with small(world) as world:
        batch = await world.submit(ITEMS[:100], chunk=50)
        async with world.worker(batch_max_in_flight=0, engine_slots=SLOTS) as running:
            assert running.worker._control.problems == ()
            await world.finished(batch)
        assert "slots_unknown" not in await problems(world)
    assert world.engine.longest_queue <= 0
    assert world.engine.peak == SLOTS - world.settings.sync_reserve_slots


async def test_slots_that_are_named_too_high_are_a_problem_and_what_was_seen_holds(world: World) -> None:
    async with small(world) as world:
        batch = await world.submit(ITEMS[:150], chunk=50)
        async with world.worker(batch_max_in_flight=0, engine_slots=256) as running:
            control = running.worker._control
            await busy_until(world, lambda: control.search.contradicts)
            assert control.slots <= 20
            said = "strpos(problems::text, 'runs 256 requests at once, but it ran 16 while others waited') > 0"
            await world.until(f"exists (select from engine where {said})")
            control._counted_tokens = (10**9, 0)  # as of an engine before this one
            await busy_until(world, lambda: not control.search.contradicts)
            await world.finished(batch)
    assert {ok for ok, _, _ in (await world.results(batch)).values()} == {1}


async def test_the_scheduler_inside_says_how_many_there_are(world: World, tmp_path: Path) -> None:
    own = OwnPage(tmp_path / "pages", 0, b"one engi")
    own.page.publish(Report(at=clock.monotonic(), steps=1, slots=SLOTS), Weights())
    async with small(world) as world, world.worker(page_dir=str(own.path.parent), batch_max_in_flight=0) as running:
        await eventually(lambda: running.worker._engine.slots == SLOTS)
        assert running.worker._control.problems == ()
        await world.until(f"exists (select from engine where slots = {SLOTS})")
    own.close()
