"""The API in process, with a key for the account `acme`. A plugin, because the tests of the GPU worker use it too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

from app.db.pool import Database
from app.settings import Settings
from app.tenants.key_scope import EVERYTHING

if TYPE_CHECKING:
    import httpx
    from fastapi import FastAPI

# The API is imported by the tests that use it: it takes a second.


@pytest.fixture
async def key(settings: Settings, database: Database) -> str:
    """A bearer token of `acme`."""
    from app.crypto import secret_key
    from app.tenants import service as tenants

    async with database.transaction() as conn:
        return str(await tenants.create_key(conn, secret_key(settings), "acme", "test", scope=EVERYTHING))


@pytest.fixture(scope="session")
def application() -> FastAPI:
    """The routes of the API."""
    from tests.api import in_process

    return in_process.application()


@pytest.fixture
async def client(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """An HTTP client with that key."""
    from tests.api import in_process

    async with in_process.running(settings, key) as (_, client):
        yield client


@pytest.fixture
def one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits of a key are counted in minutes of the database's clock: here it stands still, so none ends in a test."""
    from app.tenants import sql

    for name in ("TAKE", "ADD_USAGE"):
        monkeypatch.setattr(sql, name, getattr(sql, name).replace("now()", "timestamptz '2026-01-01 00:00:30Z'"))
