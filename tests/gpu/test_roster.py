"""Claims about a process with several engines: which it takes, that two processes never control one, and what comes and goes."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import psycopg
import pytest
import structlog

from app.db.pool import Database
from app.engines.engine_list import EngineListError
from app.files import shared_storage
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually, in_time
from tests.clock import Clock
from tests.gpu.world import World, process
from workers.gpu.ending import Ending
from workers.gpu.roster import Roster
from workers.gpu.tuning import WorkerTuning
from workers.gpu.worker_process import WorkerProcess

QUICK = WorkerTuning(
    list_seconds=0.1,
    missed_looks=2,
    answer_seconds=1,
    failure_seconds=(0.1, 0.2),
    notice_seconds=0.05,
    health_seconds=0.05,
)
NOBODY = "http://127.0.0.1:1"


class Running:
    """`slackwater gpu-worker` with a list, in this process. `hosts`: what the DNS answers, by host."""

    def __init__(self, settings: Settings, database: Database, hosts: dict[str, list[str]]) -> None:
        self.hosts = hosts
        self.once: list[list[str]] = []  # what it answers before that, one time each
        self.process = WorkerProcess(settings, database, QUICK)
        self.roster = Roster(settings, self.process, self._resolve)
        self.ending = Ending()
        self.task = asyncio.create_task(self._run())

    async def _resolve(self, host: str) -> list[str]:
        return self.once.pop() if self.once else self.hosts[host]

    async def _run(self) -> None:
        async with self.process:
            await self.roster.run(self.ending)

    @property
    def names(self) -> set[str]:
        """The engines that it has."""
        return set(self.roster._posts)

    async def health(self) -> int:
        """The status of its `/health`."""
        await eventually(lambda: bool(self.process._server._url))
        async with aiohttp.ClientSession() as session, session.get(f"{self.process._server._url}/health") as answer:
            return answer.status

    async def stop(self) -> None:
        self.ending.finish()
        async with in_time():
            await self.task


@asynccontextmanager
async def running(world: World, hosts: dict[str, list[str]] | None = None, **changes: object) -> AsyncIterator[Running]:
    unset = {"engine_url": "", "engine_model": "smollm2-135m-instruct"}
    settings = world.settings.model_copy(update=unset | {"lease_seconds": 2, "heartbeat_seconds": 0.2} | changes)
    async with Database.of(settings, "gpu test") as database:
        found = Running(settings, database, hosts or {})
        try:
            yield found
        finally:
            await found.stop()


@pytest.fixture
async def engines() -> AsyncIterator[list[FakeEngine]]:
    """Three engines beside the world's own."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(FakeEngine(latency=0.01)) for _ in range(3)]


def listed(file: Path, engines: dict[str, str]) -> str:
    file.write_text(
        "".join(f"[[engine]]\nname = {json.dumps(name)}\nurl = {json.dumps(url)}\n" for name, url in engines.items())
    )
    return f"file:{file}"


async def tried(found: Running, times: int) -> None:
    """Wait until so many workers of gpu-0 have been started."""
    for _ in range(times):
        last = found.roster._tried.get("gpu-0")
        await eventually(lambda last=last: found.roster._tried.get("gpu-0") != last)


def ready(*names: str) -> str:
    return f"array(select name from engine where state = 'ready' order by name) = array{sorted(names)}::text[]"


async def test_a_process_runs_a_batch_on_all_engines_of_its_file(
    world: World, engines: list[FakeEngine], tmp_path: Path
) -> None:
    spec = listed(tmp_path / "e.toml", {f"gpu-{n}": engine.url for n, engine in enumerate(engines)})
    for engine in engines:
        engine.latency = 0.05
    async with running(world, engines=spec, batch_max_in_flight=2) as found:
        await world.until(ready("gpu-0", "gpu-1", "gpu-2"))
        assert await world.fetch("select count(distinct worker_id), count(distinct arrival_url) from engine") == [
            (3, 3)
        ]
        batch = await world.submit([f"item {n}" for n in range(60)], chunk=2)
        await world.finished(batch)
        page = found.process.page().decode()
    assert all(engine.finished.total() > 0 for engine in engines)
    assert sum(engine.count.total() for engine in engines) == 60
    assert all(f'slackwater_worker_allowance_requests{{engine="gpu-{n}"}}' in page for n in range(3))
    assert await world.fetch("select count(*) from worker") == [(0,)]


async def test_two_processes_share_a_list_and_no_engine_has_two_workers(
    world: World, engines: list[FakeEngine], tmp_path: Path, clock: Clock
) -> None:
    spec = listed(tmp_path / "e.toml", {f"gpu-{n}": engine.url for n, engine in enumerate(engines)})
    how = {"engines": spec, "lease_seconds": 60}  # longer than the time that is let pass
    async with running(world, **how, engines_max=2) as one, running(world, **how, engines_max=2) as two:
        await world.until(ready("gpu-0", "gpu-1", "gpu-2"))
        await eventually(lambda: not one.names & two.names and len(one.names | two.names) == 3)
        assert max(len(one.names), len(two.names)) == 2
        async with running(world, **how) as third:  # nothing is free for it
            await clock.sleep(10 * QUICK.list_seconds)
            assert not third.names
            await one.stop()
            await world.until(ready("gpu-0", "gpu-1", "gpu-2"))
            assert third.names | two.names == {"gpu-0", "gpu-1", "gpu-2"}


async def test_a_spare_process_is_healthy_and_gets_the_engine_when_the_one_that_has_it_ends(
    world: World, tmp_path: Path
) -> None:
    spec = listed(tmp_path / "e.toml", {"gpu-0": world.engine.url})
    async with running(world, engines=spec) as old:
        await world.until(ready("gpu-0"))
        async with running(world, engines=spec) as new:
            await eventually(new.health, until=lambda found: found == 200)
            assert (old.names, new.names) == ({"gpu-0"}, set())
            await old.stop()
            await eventually(lambda: new.names == {"gpu-0"})


async def test_an_engine_that_comes_back_under_another_address_gets_the_name_of_the_one_that_is_gone(
    world: World,
) -> None:
    port = world.engine.port
    hosts = {"vllm.test": ["127.0.0.1"]}
    async with running(world, hosts, engines=f"dns://vllm.test:{port}") as found:
        await world.until(ready("vllm-0"))
        world.engine.script({"mode": "hang"})
        batch = await world.submit([f"item {n}" for n in range(8)])
        await eventually(lambda: world.engine.running == 8)
        await world.engine.__aexit__()
        async with FakeEngine(host="127.0.0.9", port=port) as again:
            hosts["vllm.test"] = ["127.0.0.9"]
            await world.finished(batch)
            assert again.finished.total() == 8
            rows = await world.fetch("select name, url from engine where state = 'ready'")
            assert rows == [(next(iter(found.names)), again.url)]
            assert rows[0][0] in ("vllm-0", "vllm-1")
            assert await world.fetch("select count(*) from chunk where state = 'leased'") == [(0,)]
            await eventually(lambda: len(found.names) == 1)


async def test_an_engine_that_the_dns_forgets_for_a_moment_keeps_its_worker(world: World, clock: Clock) -> None:
    port = world.engine.port
    async with FakeEngine(host="127.0.0.9", port=port):
        hosts = {"vllm.test": ["127.0.0.1", "127.0.0.9"]}
        async with running(world, hosts, engines=f"dns://vllm.test:{port}", lease_seconds=60) as found:
            await world.until(ready("vllm-0", "vllm-1"))
            before = await world.fetch("select name, url, worker_id from engine order by name")
            for answer in (["127.0.0.1"], []):  # a part of them, and none
                found.once.append(answer)
                await eventually(lambda: not found.once)
                await clock.sleep(2 * QUICK.list_seconds)
            assert await world.fetch("select name, url, worker_id from engine order by name") == before
            hosts["vllm.test"] = ["127.0.0.1"]
            await eventually(lambda: found.names == {"vllm-0"})
            await world.until("exists (select from engine where name = 'vllm-1' and reason = 'released')")


async def test_an_engine_that_left_the_file_is_let_go_and_a_new_one_is_taken(
    world: World, engines: list[FakeEngine], tmp_path: Path, clock: Clock
) -> None:
    file = tmp_path / "e.toml"
    listing = listed(file, {"a": engines[0].url, "b": engines[1].url})
    async with running(world, engines=listing, lease_seconds=60) as found:
        await world.until(ready("a", "b"))
        file.write_text("[[engine")  # half an edit changes nothing
        await clock.sleep(10 * QUICK.list_seconds)
        assert found.names == {"a", "b"}
        listed(file, {"b": engines[1].url, "c": engines[2].url})
        await world.until(ready("b", "c"))
        listed(file, {"b": engines[2].url})
        await world.until(
            f"exists (select from engine where name = 'b' and state = 'ready' and url = '{engines[2].url}')"
        )


async def test_an_engine_that_does_not_answer_or_is_refused_keeps_no_other_waiting(
    world: World, engines: list[FakeEngine], tmp_path: Path
) -> None:
    engines[0].serves = ["another"]
    urls = {"silent": NOBODY, "wrong": engines[0].url, "good": engines[1].url}
    async with running(
        world, engines=listed(tmp_path / "e.toml", urls), engines_max=1, engine_model="smollm2-135m-instruct"
    ):
        await world.until("exists (select from engine where name = 'good' and state = 'ready')")


async def test_an_engine_that_fails_for_one_cause_is_logged_once_and_again_after_it_worked(
    world: World, tmp_path: Path
) -> None:
    file, urls = tmp_path / "e.toml", {"gpu-0": world.engine.url}
    world.engine.serves = ["another"]
    with structlog.testing.capture_logs() as logs:

        def failures() -> int:
            return sum(entry["event"] == "worker.failed" for entry in logs)

        async with running(world, engines=listed(file, urls)) as found:
            await tried(found, 4)
            assert failures() == 1
            world.engine.serves = None
            await world.until(ready("gpu-0"))
            listed(file, {"other": NOBODY})
            await eventually(lambda: "gpu-0" not in found.names)
            world.engine.serves = ["another"]
            listed(file, urls)
            await tried(found, 2)
            assert failures() == 2


async def test_a_list_that_names_nothing_at_the_start_ends_the_process_with_the_remedy(world: World) -> None:
    settings = world.settings.model_copy(update={"engine_url": "", "engines": "dns://none.test:80"})
    found = Running(settings, world.database, {"none.test": []})
    with pytest.raises(EngineListError):
        await found.task


async def test_the_program_says_what_it_does_not_find_and_exits_with_1(world: World, tmp_path: Path) -> None:
    async with process(world, ENGINE_URL="", ENGINES=f"file:{tmp_path}/none.toml") as child:
        _, log = await child.communicate()
    assert child.returncode == 1
    assert b"none.toml cannot be read" in log
    assert b"Correct the path" in log
    assert b"Traceback" not in log


async def test_while_there_is_a_notice_a_process_has_no_worker_and_afterwards_it_has_one_again(
    world: World, tmp_path: Path, clock: Clock
) -> None:
    notice = tmp_path / "notice"
    world.engine.script({"mode": "hang"})
    batch = await world.submit([f"item {n}" for n in range(8)])
    spec = listed(tmp_path / "e.toml", {"gpu-0": world.engine.url})
    async with running(world, engines=spec, notice_file=str(notice), drain_seconds=5) as found:
        await eventually(lambda: world.engine.running == 8)
        with structlog.testing.capture_logs() as logs:
            notice.write_text("")
            await world.until("not exists (select from worker)")
        assert [line["seconds"] for line in logs if line["event"] == "worker.draining"] == [0.0]
        assert world.engine.aborted == 8
        assert await world.fetch("select sum(n)::int, max(attempt), max(deaths) from chunk") == [(8, 0, 0)]
        world.engine.script()
        await clock.sleep(10 * QUICK.list_seconds)
        assert not found.names
        notice.unlink()
        await world.finished(batch)
    assert set(world.engine.finished) == {f"item {n}" for n in range(8)}


@pytest.mark.slow
async def test_after_kill_9_of_a_process_with_several_engines_another_one_loses_and_repeats_nothing_stored(
    world: World, engines: list[FakeEngine], tmp_path: Path
) -> None:
    for engine in engines:
        engine.latency = 0.05
    spec = listed(tmp_path / "e.toml", {f"gpu-{n}": engine.url for n, engine in enumerate(engines)})
    batch = await world.submit([f"question {n}." for n in range(600)])
    async with process(world, ENGINE_URL="", ENGINES=spec) as first:
        await world.until("(select count(distinct engine_id) from item_result) = 3 and count(*) > 100 from item_result")
        first.kill()
        await first.wait()
        await world.lapse()
    stored = await world.results(batch)
    seen = sum((engine.count for engine in engines), Counter[str]())
    async with process(world, ENGINE_URL="", ENGINES=spec):
        await world.finished(batch)
    again = sum((engine.count for engine in engines), Counter[str]())
    assert len(await world.results(batch)) == 600
    assert [seq for seq in stored if again[f"question {seq}."] > seen[f"question {seq}."]] == []


class MeteredEngine(FakeEngine):
    """Answers so many requests as it is told, in the order of their arrival. So its speed is a count, and no time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0
        self._tickets = asyncio.Semaphore(0)

    def answer(self, requests: int) -> None:
        for _ in range(requests):
            self._tickets.release()

    async def _serve(self, *request):  # type: ignore[no-untyped-def]
        self.waits += 1
        try:
            await self._tickets.acquire()
        finally:
            self.waits -= 1
        return await super()._serve(*request)


async def test_a_fast_and_a_slow_engine_share_a_batch_in_proportion_to_their_speeds(
    world: World, tmp_path: Path
) -> None:
    rounds, cap = 20, 4
    async with MeteredEngine() as fast, MeteredEngine() as slow:
        spec = listed(tmp_path / "e.toml", {"fast": fast.url, "slow": slow.url})
        batch = await world.submit([f"item {n}" for n in range(120)], chunk=2)
        # No telemetry decides: an engine that answers at our command has no pace of its own.
        async with running(world, engines=spec, headroom="static", batch_max_in_flight=cap):
            for number in range(1, rounds + 1):
                await eventually(lambda: fast.waits == slow.waits == cap)  # however fast it is, it always has work
                fast.answer(4)
                slow.answer(1)
                await eventually(lambda n=number: (fast.finished.total(), slow.finished.total()) == (4 * n, n))
            await eventually(lambda: fast.waits == slow.waits == cap)
            assert (fast.count.total(), slow.count.total()) == (4 * rounds + cap, rounds + cap)
            fast.answer(120)
            slow.answer(120)
            await world.finished(batch)
        assert fast.count.total() + slow.count.total() == 120


async def test_a_database_that_goes_away_while_the_store_is_checked_is_asked_again(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [psycopg.OperationalError("the connection is lost")]

    async def check(*_: object) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(shared_storage, "require_bodies", check)
    await Roster(settings, WorkerProcess(settings, database))._require_bodies(settings)
    assert not errors
