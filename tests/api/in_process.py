"""The API in this process, without a server, and a client for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

import httpx
from fastapi import FastAPI

from app.api import app as api
from app.settings import Settings


@cache
def application() -> FastAPI:
    """The routes. No setting changes them, and creating them takes longer than most tests, so they are created once."""
    return api.create_app(Settings())


@cache
def _served() -> FastAPI:
    return api.create_app(Settings())  # a second one, so that a test may have both


def served(settings: Settings) -> FastAPI:
    """The routes for a server with these settings, as `create_app` makes them. A process has one such server at a time."""
    app = _served()
    app.router.lifespan_context = lambda app: api.running(app, settings)
    return app


@asynccontextmanager
async def running(settings: Settings, key: str) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """The application while it runs, and a client with this API key."""
    app = application()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        api.running(app, settings),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
    ):
        yield app, client
