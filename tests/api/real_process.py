"""The API in a process of its own, as it runs in production."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from app import processes
from app.environment import child_environment
from app.settings import Settings
from testing.waiting import eventually


@asynccontextmanager
async def api(settings: Settings) -> AsyncIterator[tuple[str, asyncio.subprocess.Process]]:
    """Its URL and its process, or the parent of its processes. It has stopped in order at the end."""
    port = processes.free_port()
    process = await asyncio.create_subprocess_exec(
        *processes.python_module("app.api"),
        env=child_environment(settings.model_copy(update={"port": port}), {"PYTHONPATH": os.getcwd()}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=sys.stderr,
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient() as client:
            await eventually(
                lambda: client.get(f"{url}/ready"), "the API is ready", until=lambda answer: answer.status_code == 200
            )
        yield url, process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
