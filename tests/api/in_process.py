"""The API in this process, without a server, and a client for it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from app.api.app import create_app
from app.settings import Settings


@asynccontextmanager
async def running(settings: Settings, key: str) -> AsyncIterator[tuple[FastAPI, httpx.AsyncClient]]:
    """The application while it runs, and a client with this API key."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
    ):
        yield app, client
