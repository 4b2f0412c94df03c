"""A policy is followed by every process within a second; counted with two real API processes."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from app import processes
from app.db.pool import Database
from app.engines import catalogue
from app.environment import child_environment
from app.policy import service as policies
from app.settings import Settings
from tests.timing import note

CHAT = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "hello"}]}


@asynccontextmanager
async def api(settings: Settings) -> AsyncIterator[str]:
    """A real API process; its URL."""
    port = processes.free_port()
    environment = child_environment(settings.model_copy(update={"port": port}), {"PYTHONPATH": os.getcwd()})
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "app.api",
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient() as client, asyncio.timeout(30):
            while True:
                try:
                    if (await client.get(f"{url}/ready")).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.05)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def until(client: httpx.AsyncClient, url: str, status: int) -> float:
    """When the process at `url` first answered so, on the monotonic clock."""
    while True:
        if (await client.post(f"{url}/v1/chat/completions", json=CHAT)).status_code == status:
            return time.monotonic()
        await asyncio.sleep(0.01)


async def test_two_processes_follow_a_new_policy_within_a_second_and_a_rollback_too(
    settings: Settings, database: Database, key: str
) -> None:
    models = catalogue.load(settings.models_file)
    quick = settings.model_copy(update={"line_seconds": 0.01})
    headers = {"authorization": f"Bearer {key}"}
    async with api(quick) as one, api(quick) as two, httpx.AsyncClient(headers=headers, timeout=30) as client:
        await asyncio.gather(until(client, one, 503), until(client, two, 503))  # no engine, and no rule
        for text, status in (('[[rule]]\nid = "no"\ndeny = true\n', 403), ("", 503)):
            async with database.transaction() as conn:
                await policies.apply(conn, text, models, "test")
            begun = time.monotonic()
            async with asyncio.timeout(20):
                seen = await asyncio.gather(until(client, one, status), until(client, two, status))
            latest = max(seen) - begun
            note(f"two API processes followed a policy after {latest:.2f} s")
            assert latest < 1.0 + 2.0  # a busy machine may take longer than the promised second
