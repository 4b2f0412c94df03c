"""The address on which this installation's API listens, and checks of it."""

import asyncio
import socket
from contextlib import suppress

import httpx

from app.api_url import base_url
from app.settings import Settings


def bind_problem(settings: Settings) -> str:
    """The reason why the API cannot listen on its port; empty if it can."""
    return port_problem(settings.host, settings.port)


def port_problem(host: str, port: int) -> str:
    """The reason why nothing can listen on this port; empty if something can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server sets it too
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.strerror or str(error)
    return ""


async def until_ready(settings: Settings) -> None:
    """Wait until the API answers and reaches its database."""
    async with httpx.AsyncClient(base_url=base_url(settings), timeout=5, trust_env=False) as client:
        while True:
            with suppress(httpx.TransportError):
                if (await client.get("/ready")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
