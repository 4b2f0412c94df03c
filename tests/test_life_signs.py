"""Claims about processes that live and do nothing: whoever watches them is told."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from app import life_signs
from app.cli import supervisor
from app.cli.supervisor import Child, Supervisor
from app.settings import Settings
from testing.waiting import eventually, in_time
from tests.clock import Clock
from workers import metrics_page
from workers.steward.leader import leadership

TOUCH = "import time, pathlib\nwhile True: time.sleep(0.02); pathlib.Path({!r}).touch()"
SLEEP = "import time; time.sleep(600)"


async def live() -> int:
    """The status that whoever watches the process gets."""
    return (await metrics_page.live(make_mocked_request("GET", "/live"))).status


async def test_a_process_is_alive_while_each_of_its_loops_turns(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "alive"
    monkeypatch.setenv(life_signs.FILE, str(file))
    with life_signs.turning() as one:
        with life_signs.turning() as other:
            clock.advance(life_signs.STILL_SECONDS / 2)
            one()
            clock.advance(life_signs.STILL_SECONDS / 2 + 1)
            assert await live() == 503
            file.unlink()
            one()
            assert not file.exists()
            other()
            assert file.exists()
            assert await live() == 200
            clock.advance(life_signs.STILL_SECONDS / 2 + 1)
            one()
            clock.advance(life_signs.STILL_SECONDS / 2 + 1)
        assert await live() == 200  # what has ended need not turn
    clock.advance(2 * life_signs.STILL_SECONDS)
    assert await live() == 200


async def test_up_ends_a_part_that_lives_and_does_nothing_and_no_other(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_LOOK_SECONDS", 0.1)
    monkeypatch.setattr(life_signs, "STILL_SECONDS", 0.5)
    (settings.data_dir / "logs").mkdir()
    (settings.data_dir / "logs" / "steward.alive").touch()
    up = Supervisor(settings)
    codes = {}
    for name, program in (
        ("steward", SLEEP),
        ("gpu-worker", TOUCH.format(str(settings.data_dir / "logs" / "gpu-worker.alive"))),
    ):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, start_new_session=True)
        codes[name] = asyncio.create_task(up._end_of(Child(name, ""), process)), process
    async with in_time():
        assert await codes["steward"][0] == -signal.SIGKILL
    ends, process = codes["gpu-worker"]
    await asyncio.sleep(0.2)
    assert not ends.done()
    process.terminate()
    async with in_time():
        assert await ends == -signal.SIGTERM


async def test_a_steward_that_waits_for_the_lead_turns(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.steward.leader._RETRY_SECONDS", 0.01)
    turns: list[None] = []
    stopping = asyncio.Event()

    async def wait() -> None:
        async with leadership(settings.database_url, stopping, turn=lambda: turns.append(None)):
            pass

    async with in_time(), leadership(settings.database_url, asyncio.Event()):
        waits = asyncio.create_task(wait())
        await eventually(lambda: len(turns) >= 3)
        stopping.set()
        await waits
