"""Claims about each kind of process when its database, or a proxy before it, takes everything and never answers: it goes on by
other connections, as soon as there are any.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from uuid import uuid4

import httpx
import pytest

from app.api import app as api
from app.crypto import secret_key
from app.db import watched_connection
from app.db.pool import Database
from app.settings import Settings
from app.tasks import transport
from app.tasks.producer import Hints
from app.tenants import service as tenants
from testing.fakes.engine import FakeEngine
from testing.waiting import LIMIT_SECONDS, eventually, in_time, is_ok
from tests.gateway.support import Registry, serve
from tests.gpu.conftest import world  # noqa: F401
from tests.gpu.world import World
from tests.webhooks.support import notifying, receiving, subscribe_and_emit
from tests.wire import Wire, wired
from workers.steward import __main__ as steward
from workers.steward import leader
from workers.steward.leader import leadership

QUIET = 0.2
RUN = "/client/v4/accounts/acme/ai/run/smollm2-135m-instruct"
SAY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
LEADS = "select pid from pg_locks where locktype = 'advisory' and classid = 0 and objid = hashtext('slackwater steward')::oid"


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.db.pool.quiet_seconds", lambda lease: QUIET)
    monkeypatch.setattr(steward, "quiet_seconds", lambda lease: QUIET)
    monkeypatch.setattr(watched_connection, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(transport, "_ANSWER_SECONDS", QUIET)
    monkeypatch.setattr(api, "_PATIENCE_SECONDS", 0.5)


@pytest.fixture
async def silent(settings: Settings) -> AsyncIterator[tuple[Wire, Settings]]:
    """What a process has between itself and the database."""
    async with wired(settings) as both:
        yield both


async def test_the_api_tells_callers_to_come_again_and_serves_them_once_it_can(
    settings: Settings, database: Database, silent: tuple[Wire, Settings]
) -> None:
    wire, through = silent
    async with database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(settings), "acme", "test")
    async with FakeEngine() as engine, serve(through) as url, in_time():
        await Registry(database).ready(engine, lease_seconds=3600)
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=LIMIT_SECONDS) as client:

            async def submit() -> httpx.Response:
                return await client.post(RUN, params={"queueRequest": "true"}, json={"requests": [SAY]})

            assert is_ok(await submit())
            assert is_ok(await client.post(RUN, json=SAY))
            wire.stall()
            refused = await submit()
            assert refused.status_code == 503
            assert "database cannot be reached" in refused.json()["errors"][0]["message"]
            assert (await client.get("/ready")).status_code == 503
            assert is_ok(await client.post(RUN, json=SAY))  # for which it needs no database
            wire.abandon()
            await eventually(submit, until=is_ok)
            await eventually(lambda: client.get("/ready"), until=is_ok)


async def test_a_worker_goes_on_with_its_batch(world: World) -> None:  # noqa: F811
    async with wired(world.settings) as (wire, through):
        batch_id = await world.submit([f"silent {n}" for n in range(60)], chunk=4)
        world.engine.latency = 0.05
        async with in_time(), world.worker(database_url=through.database_url):
            for at in (1, 20, 40):
                await world.until(f"(select count(*) from item_result where batch_id = {batch_id}) >= {at}")
                wire.abandon()
            await world.finished(batch_id)
    assert len(await world.results(batch_id)) == 60


async def test_a_steward_leads_again_and_its_former_lead_ends(
    database: Database, silent: tuple[Wire, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "_IDLE_TIMEOUT", "set idle_session_timeout = '2s'")
    wire, through = silent
    stopping = asyncio.Event()
    task = asyncio.create_task(steward.run(through, stopping))
    try:
        async with in_time():
            first = await eventually(lambda: _leads(database))
            wire.abandon()
            second = await eventually(lambda: _leads(database), until=lambda pid: pid not in (None, first))
            await eventually(lambda: _leads(database), until=lambda pid: pid == second)
    finally:
        stopping.set()
        async with in_time():
            await task


async def _leads(database: Database) -> int | None:
    """The server's process that holds the lead."""
    async with database.relaxed() as conn:
        row = await (await conn.execute(LEADS)).fetchone()
    return row[0] if row else None


async def test_a_leader_that_hangs_loses_the_lead_to_another(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader, "_IDLE_TIMEOUT", "set idle_session_timeout = '300ms'")
    url = settings.database_url
    async with in_time():
        with suppress(Exception):
            async with leadership(url, asyncio.Event()) as hangs:
                assert hangs
                async with leadership(url, asyncio.Event()) as other:
                    assert other
                    await other.confirm()
                    await hangs.confirm()
        async with leadership(url, asyncio.Event()) as lead:
            assert lead


async def test_hints_are_published_again(silent: tuple[Wire, Settings]) -> None:
    wire, through = silent
    hints = Hints.of(through, through.database_url)
    try:
        async with in_time():
            await eventually(lambda: hints.endpoints([uuid4()]))
            wire.abandon()
            await eventually(lambda: hints.endpoints([uuid4()]))
            await eventually(lambda: hints.endpoints([uuid4()]))
    finally:
        await hints.close()


@pytest.mark.slow
async def test_a_notifier_delivers_what_comes_afterwards(settings: Settings, silent: tuple[Wire, Settings]) -> None:
    wire, through = silent
    with receiving() as receiver, ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, notifying(through, lease_seconds=1))
        await subscribe_and_emit(settings, receiver.url)
        await asyncio.to_thread(receiver.wait, 1)
        wire.abandon()
        await subscribe_and_emit(settings, f"{receiver.url}again", 2)
        await asyncio.to_thread(receiver.wait, 3)
