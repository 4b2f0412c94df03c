"""The API in process, with a key for the account `acme`."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from app.api.app import create_app, running
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


@pytest.fixture(scope="session")
def application() -> FastAPI:
    """The routes, which no setting changes: to make them takes longer than most tests, so they are made once."""
    return create_app(Settings())


@pytest.fixture
async def client(application: FastAPI, settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client with that key, of an application that lives for this test alone."""
    app = application
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        running(app, settings),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
    ):
        yield client
