"""Where the API of this installation listens, and whether it answers there."""

import asyncio
import socket
from contextlib import suppress

import httpx

from app.settings import Settings

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104


def base_url(settings: Settings) -> str:
    """The API's URL as this machine reaches it."""
    host = _EVERYWHERE.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"


def bind_problem(settings: Settings) -> str:
    """Why the API could not listen; empty when it could."""
    with socket.socket(socket.AF_INET6 if ":" in settings.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server itself does
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


async def until_ready(settings: Settings) -> None:
    """Return when the API answers and reaches its database."""
    async with httpx.AsyncClient(base_url=base_url(settings), timeout=5, trust_env=False) as client:
        while True:
            with suppress(httpx.TransportError):
                if (await client.get("/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
