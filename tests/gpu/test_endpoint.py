"""The worker's endpoint: who may speak, what is understood, and that the control loop wakes."""

import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import orjson
import pytest
from aiohttp import web

from app.crypto import MasterKey, bearer_token
from app.engines.engine_key import door_token
from app.gateway.announcer import Announcer
from app.headroom.arrivals import ANNOUNCING, RECENT, Arrivals
from app.settings import Settings
from testing.waiting import eventually, in_time
from workers.gpu.arrival_events import ArrivalEvents
from workers.gpu.http_server import HttpServer

SECRET = b"a secret key of at least thirty-two bytes"
TOKEN = bearer_token(SECRET, ANNOUNCING)
ARRIVED = {"id": "a", "event": "arrived", "class": "sync", "prompt_tokens": 100, "max_tokens": 20}


@dataclass
class Served:
    """A running endpoint, its ledger, and how often it woke the control loop."""

    ledger: Arrivals = field(default_factory=lambda: Arrivals(600))
    woken: int = 0
    url: str = ""

    def wake(self) -> None:
        self.woken += 1

    async def post(self, *events: Any, token: str | None = TOKEN) -> int:
        headers = {"authorization": f"Bearer {token}"} if token is not None else {}
        async with aiohttp.ClientSession(headers=headers) as session:
            body = b"\n".join(orjson.dumps(event) for event in events)
            return (await session.post(f"{self.url}/arrivals", data=body)).status


@asynccontextmanager
async def listening(settings: Settings, secret: bytes = SECRET, ledger: Arrivals | None = None) -> AsyncIterator[str]:
    """The URL of a server that hears announcements for one engine."""
    events = ArrivalEvents(ledger or Arrivals(1), lambda: None)
    async with HttpServer(settings, secret, metrics=bytes) as server:
        with server.announced(settings.engine_name, events) as url:
            yield url


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path)


@pytest.fixture
async def served(settings: Settings) -> AsyncIterator[Served]:
    served = Served()
    async with HttpServer(settings, SECRET, metrics=lambda: b"slackwater_up 1\n") as server:
        with server.announced(settings.engine_name, ArrivalEvents(served.ledger, served.wake)) as served.url:
            yield served


async def test_an_announcement_is_in_the_ledger_and_has_woken_the_loop_when_the_answer_comes(served: Served) -> None:
    assert await served.post(ARRIVED) == 204
    assert (served.ledger.load(0).open, served.ledger.load(0).awaiting_tokens, served.woken) == (1, 100, 1)


async def test_what_follows_an_announcement_wakes_nobody(served: Served) -> None:
    await served.post(ARRIVED)
    first = {"id": "a", "event": "first_token", "ttft_ms": 12.5}
    assert await served.post(first, {"id": "b", "event": "first_token", "ttft_ms": None}) == 204
    assert served.ledger.load(0).awaiting == 0
    finished = {"id": "a", "event": "finished", "output_tokens": 9, "itl_p50_ms": 3, "itl_p95_ms": None}
    assert await served.post(finished) == 204
    assert (served.ledger.load(0).open, served.ledger.latency().ttft_p50, served.woken) == (0, 12.5, 1)


@pytest.mark.parametrize("token", [None, "", "x", TOKEN + "x", TOKEN[:-1], bearer_token(b"another", ANNOUNCING), "é"])
async def test_who_does_not_know_the_secret_key_is_not_heard(served: Served, token: str | None) -> None:
    assert await served.post(ARRIVED, token=token) == 401
    assert (served.ledger.load(0).open, served.woken) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"prompt_tokens": -1},
        {"prompt_tokens": "100"},
        {"prompt_tokens": 1.5},
        {"prompt_tokens": True},
        {"max_tokens": None},
        {"id": ""},
        {"id": "x" * 65},
        {"id": 7},
        {"class": "batch"},
    ],
)
async def test_a_bad_event_ends_the_message_and_what_came_before_it_counts(
    served: Served, change: dict[str, Any]
) -> None:
    assert await served.post({**ARRIVED, "id": "good"}, {**ARRIVED, **change}, {**ARRIVED, "id": "after"}) == 400
    assert (served.ledger.load(0).open, served.woken) == (1, 1)


async def test_fields_and_events_of_a_newer_sender_are_ignored_and_what_follows_counts(served: Served) -> None:
    events = [
        {**ARRIVED, "extra": 1},
        {"event": "paused", "id": "a", "for": 7},
        {"event": "wake", "model": "toy"},
        {**ARRIVED, "id": "after"},
    ]
    assert await served.post(*events) == 204
    assert (served.ledger.load(0).open, served.woken) == (2, 2)


def test_requests_that_have_ended_leave_no_memory_behind() -> None:
    events = ArrivalEvents(Arrivals(600), lambda: None)

    def pass_by(count: int) -> None:
        for _ in range(count):
            of = {"id": uuid4().hex}
            events.take(orjson.dumps(ARRIVED | of))
            events.take(orjson.dumps({"event": "first_token", "ttft_ms": 30.0} | of))
            events.take(orjson.dumps({"event": "finished", "itl_p50_ms": 8.0, "itl_p95_ms": 9.0} | of))

    pass_by(RECENT)  # whose latencies are kept
    gc.collect()
    before = sys.getallocatedblocks()
    pass_by(2000)
    gc.collect()
    assert sys.getallocatedblocks() - before < 500


async def test_huge_and_broken_events_are_refused(served: Served) -> None:
    assert await served.post({**ARRIVED, "id": "x" * 3_000_000}) == 413
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {TOKEN}"}) as session:
        assert (await session.post(f"{served.url}/arrivals", data=b"{")).status == 400
    assert served.ledger.load(0).open == 0


async def test_prometheus_and_probes_need_no_token(served: Served) -> None:
    async with aiohttp.ClientSession() as session:
        scrape = await session.get(f"{served.url}/metrics")
        assert (scrape.content_type, await scrape.text()) == ("text/plain", "slackwater_up 1\n")
        assert (await session.get(f"{served.url}/health")).status == 200


async def test_each_engine_of_a_process_hears_its_own_announcements_and_a_door_opens_only_its_own(
    settings: Settings,
) -> None:
    several = settings.model_copy(update={"engines": "file:engines.toml"})
    first, second = Served(), Served()
    async with HttpServer(several, SECRET, metrics=bytes) as server:
        with (
            server.announced("a-0", ArrivalEvents(first.ledger, first.wake)) as first.url,
            server.announced("a/1", ArrivalEvents(second.ledger, second.wake)) as second.url,
        ):
            assert await second.post(ARRIVED) == 204
            assert await first.post(ARRIVED, token=door_token(SECRET, "a/1")) == 401
            assert await second.post({**ARRIVED, "id": "b"}, token=door_token(SECRET, "a/1")) == 204
            assert (first.ledger.load(0).open, second.ledger.load(0).open) == (0, 2)
            async with aiohttp.ClientSession() as session:
                assert (await session.get(first.url.replace("/engines/a-0", "/health"))).status == 200
        assert await first.post(ARRIVED) == 404
        async with aiohttp.ClientSession() as session:
            health = first.url.replace("/engines/a-0", "/health")
            assert (await session.get(health)).status == 503
            server.stand_by()
            assert (await session.get(health)).status == 200


async def test_a_gateway_with_another_accepted_secret_key_is_heard(settings: Settings) -> None:
    next_key = MasterKey(b"the next secret key of thirty-two bytes")
    next_key.others = (SECRET,)
    async with listening(settings, next_key) as url:
        for token, status in ((TOKEN, 204), (bearer_token(next_key, ANNOUNCING), 204), (f"{TOKEN}x", 401)):
            async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as session:
                assert (await session.post(f"{url}/arrivals", data=b"")).status == status


async def test_gateways_are_told_an_address_that_they_can_connect_to(settings: Settings) -> None:
    for changes, expected in (
        ({}, "http://127.0.0.1:"),
        ({"arrival_host": "0.0.0.0"}, "http://"),
        ({"arrival_host": "0.0.0.0", "arrival_url": "http://worker-7:9000"}, "http://worker-7:9000"),
    ):
        own = settings.model_copy(update=changes)
        async with listening(own) as url:
            assert url.startswith(expected)
            assert "0.0.0.0" not in url


async def test_the_gateways_announcer_is_heard_event_by_event_over_one_request(served: Served) -> None:
    async with Announcer(TOKEN, rest_seconds=5) as announcer:
        for number in range(3):
            await announcer.announce(served.url, {**ARRIVED, "id": str(number)})
            await eventually(lambda open=number + 1: served.ledger.load(0).open == open)
        announcer.report(served.url, {"id": "0", "event": "first_token", "ttft_ms": 1.0})
        announcer.report(served.url, {"id": "0", "event": "finished", "output_tokens": 3, "itl_p50_ms": None})
        await eventually(lambda: served.ledger.load(0).open == 2)
        announcer.report(served.url, {"id": "1", "event": "finished"})
    await eventually(lambda: served.ledger.load(0).open == 1)  # what was said last, though the gateway has gone
    assert served.woken == 3


async def test_an_endpoint_closes_at_once_under_a_gateway_that_speaks(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = web.AppRunner  # which would itself wait for a second, and here for an hour
    monkeypatch.setattr(web, "AppRunner", lambda app, **how: runner(app, **how | {"shutdown_timeout": 3600}))
    ledger = Arrivals(600)
    async with in_time(), Announcer(TOKEN, rest_seconds=5) as announcer, listening(settings, SECRET, ledger) as url:
        await announcer.announce(url, ARRIVED)
        await eventually(lambda: ledger.load(0).open == 1)
