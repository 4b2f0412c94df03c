"""The console in this process, with a database of its own, and clients that are signed in."""

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from starlette.applications import Starlette

from app.access import sessions
from app.access.roles import Grant, Role
from app.console import app as console
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants

ORIGIN = "http://127.0.0.1:8701"
SAME = {"sec-fetch-site": "same-origin"}
SignIn = Callable[..., Awaitable[httpx.AsyncClient]]


@pytest.fixture
async def site(settings: Settings) -> AsyncIterator[Starlette]:
    """The application while it runs."""
    listening = settings.model_copy(update={"console_port": 8701})  # it is only a name here: nothing listens
    app = console.create_app(listening)
    async with console.running(app, listening):
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
