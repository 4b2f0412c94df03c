"""An attached worker whose engine has a control page: what the installation says about it, and that it is one worker's alone."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app import clock
from app.settings import Settings
from tests.gpu.world import World
from workers.engine.control_page import Commands, Report, Weights
from workers.engine.page_folder import IGNORED, OwnPage
from workers.gpu.harvest_control import HarvestControl

REPORT = Report(trusted=True, model_samples=1000)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnPage]:
    """The engine's side, which reports but takes no steps."""
    own = OwnPage(tmp_path / "pages", 0, b"one engi")
    own.page.publish(REPORT, Weights())
    yield own
    if not own.page.closed:
        own.close()


def heard(own: OwnPage) -> Commands | None:
    """The commands of a worker that lives."""
    commands = own.page.commands()
    return commands if commands is not None and clock.monotonic() - commands.heartbeat < 1 else None


async def test_the_status_says_inside_while_the_page_lives_and_then_what_is_missing(world: World, own: OwnPage) -> None:
    async with world.worker(page_dir=str(own.path.parent), heartbeat_seconds=0.1):
        inside = "exists (select from engine where protection = 'inside' and problems = '[]')"
        await world.until(inside)
        commands = heard(own)
        assert commands is not None
        assert commands.harvest
        own.close()
        await world.until('exists (select from engine where problems @> \'[{"code": "no_page"}]\')')
        [(protection,)] = await world.fetch("select protection from engine")
        assert protection == "outside"
        batch = await world.submit(["a", "b"])
        await world.finished(batch)  # L1 goes on


def test_a_scheduler_that_takes_steps_without_our_commands_does_not_count_as_protection(
    settings: Settings, own: OwnPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = HarvestControl(settings, own.path.parent)
    control.open()
    now = clock.monotonic()
    seen = []
    for second, steps, planning in [
        (0, 9, 0),
        (0.5, 10, 0),
        (4, 10, 0),
        (5, 11, 0),
        (6, 12, 1),
        (7, 12, 1),
        (8, 13, 0),
    ]:
        monkeypatch.setattr(clock, "monotonic", lambda at=now + second: at)
        own.page.publish(replace(REPORT, steps=steps, planning=bool(planning)), Weights())
        control.command(0.0)
        seen.append((control.active, control.obstacle))
    assert seen == [(True, None)] * 3 + [(False, IGNORED)] + [(True, None)] * 3
    control.close()


async def test_a_worker_that_ends_hands_the_engine_back(world: World, own: OwnPage) -> None:
    async with world.worker(page_dir=str(own.path.parent), heartbeat_seconds=0.1):
        await world.until("exists (select from engine where protection = 'inside')")
    commands = own.page.commands()
    assert commands is not None
    assert not commands.harvest


async def test_with_a_page_of_the_engine_batch_work_is_done_by_its_report(world: World, own: OwnPage) -> None:
    async with world.worker(page_dir=str(own.path.parent), heartbeat_seconds=0.1):
        await world.until("exists (select from engine where protection = 'inside')")
        batch = await world.submit([f"item {n}" for n in range(12)])
        await world.finished(batch)
        reasons = {row[0] for row in await world.fetch("select reason from engine")}
    assert reasons == {"harvest"}
