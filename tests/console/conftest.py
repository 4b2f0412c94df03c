"""The console in this process, with a database of its own, and clients that are signed in; and browsers that look at it."""

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette

from app import processes
from app.access import sessions
from app.access.roles import Grant, Role
from app.cli.database import on_database
from app.console import app as console_app
from app.db.pool import Connection, Database
from app.settings import Settings
from app.tenants import service as tenants
from testing import operations_data
from testing.waiting import wait_for
from tests.console import browser
from tests.console.browser import Reader
from tests.system.stack import Account, Stack

ORIGIN = "http://127.0.0.1:8701"
SAME = {"sec-fetch-site": "same-origin"}
SignIn = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def site(settings: Settings) -> AsyncIterator[Starlette]:
    """The application while it runs."""
    listening = settings.model_copy(update={"console_port": 8701})  # it is only a name here: nothing listens
    app = console_app.create_app(listening)
    async with console_app.running(app, listening):
        yield app


@pytest.fixture
async def stranger(site: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who has not signed in."""
    async with _client(site) as client:
        yield client


@pytest.fixture
async def sign_in(site: Starlette, database: Database) -> AsyncIterator[SignIn]:
    """Signs somebody in: `await sign_in(Role.ADMIN, "acme")`."""
    opened = []

    async def begin(role: Role, account: str | None = "acme", subject: str = "ada") -> httpx.AsyncClient:
        client = _client(site)
        opened.append(client)
        async with database.transaction() as conn:
            tenant_id = await tenants.ensure_tenant(conn, account) if role.of_account and account else None
            token = await sessions.invite(conn, Grant(subject, role, tenant_id))
        answer = await client.post("/console/login", data={"token": token})
        assert answer.status_code == 303, answer.text
        return client

    yield begin
    for client in opened:
        await client.aclose()


def _client(site: Starlette) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=site, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers=SAME)


@pytest.fixture(scope="module")
def chromium(installation: Stack) -> Iterator[Any]:
    """A browser, launched after the installation, as it keeps an event loop in this thread."""
    browser.require()
    with browser.launched() as found:
        yield found


@pytest.fixture
def reader(chromium: Any, installation: Stack, account: Account) -> Iterator[Reader]:
    """An admin of the account. Nothing may complain: no error of a script, no report of the policy."""
    reader = Reader(chromium, installation, account.name)
    reader.sign_in()
    yield reader
    assert reader.complaints == []
    reader.context.close()


@pytest.fixture
def console(settings: Settings) -> Iterator[Any]:
    """The console in a thread of this process, on an installation with a history."""
    browser.require()

    async def fill(conn: Connection) -> None:
        async with conn.transaction():
            await operations_data.fill(conn, samples=200)

    on_database(settings, fill)
    with serving(settings) as served:
        yield SimpleNamespace(settings=served)


@contextmanager
def serving(settings: Settings) -> Iterator[Settings]:
    """The console in a thread of this process. Yields its settings, with its port."""
    served = settings.model_copy(update={"console_port": processes.free_port()})
    config = uvicorn.Config(
        console_app.create_app(served), port=served.console_port, log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started, "the console")
    yield served
    server.should_exit = True
    thread.join(10)
