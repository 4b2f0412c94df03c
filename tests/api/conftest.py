"""The API in process, with a key for the account `acme`."""

from collections.abc import AsyncIterator

import httpx
import pytest

from app.api.app import create_app
from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants

RUN = "/client/v4/accounts/acme/ai/run/smollm2-135m-instruct"
SUBMIT = f"{RUN}?queueRequest=true"


@pytest.fixture
async def key(settings: Settings, database: Database) -> str:
    """A bearer token of `acme`."""
    async with database.transaction() as conn:
        return str(await tenants.create_key(conn, secret_key(settings), "acme", "test"))


@pytest.fixture
async def client(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client with that key."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
    ):
        yield client
