"""While the database is away, synchronous callers whose keys and engines are known do not notice."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from psycopg import OperationalError

from app.api import app as api
from app.crypto import secret_key
from app.db import embedded, migrate, remembered
from app.db.pool import Database
from app.db.remembered import FAITH_SECONDS, Remembered
from app.queue import care
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.limits import Limits
from tests.fakes.engine import FakeEngine
from tests.gateway.support import Registry, serve

RUN = "/client/v4/accounts/acme/ai/run/smollm2-135m-instruct"
SAY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.fixture
def own_server() -> Iterator[Settings]:
    """An embedded server that may be stopped."""
    with tempfile.TemporaryDirectory(prefix="slackwater-tests-") as folder:
        Path(folder).chmod(0o755)  # the server does not run as root
        settings = Settings(data_dir=Path(folder), secret_key="test-secret-key-of-at-least-32-bytes!")
        url = embedded.start(settings)
        migrate.upgrade(url)
        asyncio.run(_with_partitions(url))
        yield settings.model_copy(update={"database_url": url})
        embedded.stop(settings, "immediate")


async def _with_partitions(url: str) -> None:
    async with Database(url, size=1) as database, database.transaction() as conn:
        await care.create_partitions(conn, days_ahead=1)


@pytest.fixture
async def clients(
    own_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, httpx.AsyncClient]]:
    """Callers with an ordinary key and with a limited one, of an API with one engine behind it."""
    monkeypatch.setattr(api, "_PATIENCE_SECONDS", 1.0)
    async with FakeEngine() as engine, Database.of(own_server, "test") as database:
        await Registry(database).ready(engine, lease_seconds=3600)
        async with database.transaction() as conn:
            pepper = secret_key(own_server)
            keys = [
                str(await tenants.create_key(conn, pepper, "acme", "test", None, limits))
                for limits in (Limits(), Limits(requests=100))
            ]
        async with serve(own_server) as url:
            plain, limited = (
                httpx.AsyncClient(base_url=url, timeout=20, headers={"authorization": f"Bearer {key}"}) for key in keys
            )
            async with plain, limited:
                yield plain, limited


async def test_synchronous_calls_go_on_without_the_database_and_submits_are_told_to_come_again(
    clients: tuple[httpx.AsyncClient, httpx.AsyncClient], own_server: Settings
) -> None:
    plain, limited = clients
    for client in clients:
        assert (await client.post(RUN, json=SAY)).status_code == 200
    await asyncio.to_thread(embedded.stop, own_server, "immediate")
    await asyncio.sleep(1.5)  # longer than a key or the list of engines is taken for fresh
    for client in (plain, limited, plain, limited):
        for body in (SAY, SAY | {"stream": True}):
            answer = await client.post(RUN, json=body)
            assert answer.status_code == 200, answer.text
            assert "error" not in answer.text.replace('"errors":[]', "")
    refused = await plain.post(RUN, params={"queueRequest": "true"}, json={"requests": [SAY]})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")

    await asyncio.to_thread(embedded.start, own_server)
    async with asyncio.timeout(20):
        while (await plain.post(RUN, params={"queueRequest": "true"}, json={"requests": [SAY]})).status_code != 200:
            await asyncio.sleep(0.1)
    assert (await limited.post(RUN, json=SAY)).headers["ratelimit-policy"] == '"requests";q=100;w=60'


async def test_what_was_said_is_believed_while_nobody_answers_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    now, answers = 1000.0, ["first"]
    monkeypatch.setattr(remembered.clock, "monotonic", lambda: now)
    memory = Remembered[str]()

    async def ask() -> str:
        if not answers:
            raise OperationalError
        return answers.pop()

    assert await memory.get(ask, 1) == "first"
    answers.append("second")
    assert await memory.get(ask, 1) == "first"
    now += 1
    assert await memory.get(ask, 1) == "second"
    now += FAITH_SECONDS
    assert await memory.get(ask, 1) == "second"
    now += 1
    with pytest.raises(OperationalError):
        await memory.get(ask, 1)


async def test_who_asks_a_database_that_hangs_waits_once_and_gets_what_was_said_before() -> None:
    memory, asked, hanging = Remembered[str](), 0, asyncio.Event()

    async def ask() -> str:
        nonlocal asked
        asked += 1
        if asked > 1:
            await hanging.wait()
        return f"answer {asked}"

    assert await memory.get(ask, 0) == "answer 1"
    assert await asyncio.gather(*(memory.get(ask, 0) for _ in range(10))) == ["answer 1"] * 10
    assert asked == 2
    hanging.set()
    await asyncio.sleep(0.01)
    assert memory.last == "answer 2"
