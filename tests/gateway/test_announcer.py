"""Claims about announcements: to whom they go, and what a worker does that does not read them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

import orjson
import pytest
from aiohttp import web
from prometheus_client import REGISTRY

from app.gateway import announcer
from app.gateway.announcer import Announcer
from app.gateway.relay import Gateway, SyncCall
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.clock import Clock
from tests.gateway.support import FakeWorker, Registry

EVENT = {"id": "a", "event": "finished"}


def count(outcome: str) -> float:
    return REGISTRY.get_sample_value("slackwater_announcements_total", {"outcome": outcome}) or 0.0


async def test_a_worker_that_takes_nothing_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server = await asyncio.start_server(silent, "127.0.0.1", 0, limit=1024)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    failed, skipped = count("failed"), count("skipped")
    async with Announcer("token", rest_seconds=3600) as speaker:
        await speaker.announce(url, EVENT)
        await asyncio.sleep(0.1)
        for _ in range(200):  # 20 MB, more than any socket's buffer
            await speaker.announce(url, {**EVENT, "id": "x" * 100_000})
        assert count("failed") == failed + 1
        assert count("skipped") > skipped + 100
    server.close()


async def test_a_worker_that_went_away_is_left_alone_for_a_while_and_then_told_again(clock: Clock) -> None:
    skipped = count("skipped")
    async with Announcer("token", rest_seconds=60) as speaker:
        await speaker.announce("http://127.0.0.1:9", EVENT)  # nobody knows yet that nobody is there
        await asyncio.sleep(0.1)
        await speaker.announce("http://127.0.0.1:9", EVENT)
        assert count("skipped") == skipped + 1
        clock.advance(60)
        await speaker.announce("http://127.0.0.1:9", EVENT)
        assert count("skipped") == skipped + 1


async def test_an_address_that_is_none_delays_and_fails_nothing() -> None:
    skipped = count("skipped")
    async with Announcer("token", rest_seconds=3600) as speaker:
        await speaker.announce("http://worker:none", EVENT)
        await speaker.announce("http://worker:none", EVENT)
    assert count("skipped") == skipped + 1


async def test_nobody_listens_where_there_is_no_address() -> None:
    skipped = count("skipped")
    async with Announcer("token", rest_seconds=5) as speaker:
        await speaker.announce(None, EVENT)
        speaker.report(None, EVENT)
    assert count("skipped") == skipped + 1


async def test_a_gateway_has_lines_only_to_the_workers_of_engines_that_it_sends_to(
    gateway: Gateway, registry: Registry, call: SyncCall, worker: FakeWorker
) -> None:
    async with AsyncExitStack() as stack:
        for n in range(5):
            engine = await stack.enter_async_context(FakeEngine())
            await registry.ready(engine, f"engine-{n}", arrival_url=f"{worker.url}?{n}")  # five addresses of one worker
        for _ in range(20):
            await gateway.complete(replace(call, session="s"))
    assert worker.messages == 1


async def test_a_line_that_nobody_uses_is_closed_in_order_and_the_next_event_opens_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(announcer, "UNUSED_SECONDS", 0.2)
    async with worker_server() as worker, Announcer("token", rest_seconds=3600) as speaker:
        await speaker.announce(worker.url, {**EVENT, "id": "first"})
        await eventually(lambda: worker.ended == 1)
        assert not speaker._streams
        skipped = count("skipped")
        await speaker.announce(worker.url, {**EVENT, "id": "second"})
        assert count("skipped") == skipped
        await eventually(lambda: worker.heard == ["first", "second"])


async def test_a_line_in_use_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcer, "UNUSED_SECONDS", 1.0)
    async with worker_server() as worker, Announcer("token", rest_seconds=3600) as speaker:
        for number in range(30):
            speaker.report(worker.url, {**EVENT, "id": str(number)})
            await asyncio.sleep(0.05)
        await eventually(lambda: len(worker.heard) == 30)
        assert (worker.begun, worker.ended) == (1, 0)


@dataclass
class Worker:
    """Who reads announcements: how many requests began and ended, and the ids of their events."""

    url: str = ""
    begun: int = 0
    ended: int = 0
    heard: list[str] = field(default_factory=list)

    async def take(self, request: web.Request) -> web.Response:
        self.begun += 1
        async for line in request.content:
            if line.strip():
                self.heard.append(orjson.loads(line)["id"])
        self.ended += 1
        return web.Response(status=204)


@asynccontextmanager
async def worker_server() -> AsyncIterator[Worker]:
    worker, app = Worker(), web.Application()
    app.router.add_post("/arrivals", worker.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        worker.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield worker
    finally:
        await runner.cleanup()
