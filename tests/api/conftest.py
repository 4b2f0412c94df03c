"""The API in process, with a key for the account `acme`."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI

from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.api import in_process

RUN = "/client/v4/accounts/acme/ai/run/smollm2-135m-instruct"
SUBMIT = f"{RUN}?queueRequest=true"


@pytest.fixture
async def key(settings: Settings, database: Database) -> str:
    """A bearer token of `acme`."""
    async with database.transaction() as conn:
        return str(await tenants.create_key(conn, secret_key(settings), "acme", "test"))


@pytest.fixture(scope="session")
def application() -> FastAPI:
    """The routes of the API."""
    return in_process.application()


@pytest.fixture
async def client(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client with that key."""
    async with in_process.running(settings, key) as (_, client):
        yield client
