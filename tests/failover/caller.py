"""Somebody who sends one synchronous request after the other, which the API announces to the workers of the engines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import httpx

from app.cli.key import create_key
from tests.crash.client import MOST_TOKENS, TRY_AGAIN
from tests.crash.history import SERVED
from tests.crash.system import System

ACCOUNT = "caller"
PAUSE_SECONDS = 0.3


@asynccontextmanager
async def calling(system: System) -> AsyncIterator[None]:
    """While the block runs, requests are sent. Each must be answered as its prompt says, or with a reason to try again."""
    key = await asyncio.to_thread(create_key, system.direct, ACCOUNT, "failover", 1)
    base, headers = f"{system.url}/client/v4/accounts/{ACCOUNT}", {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=4, trust_env=False) as client:
        task = asyncio.create_task(_call(system, client))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
    if not task.cancelled():
        task.result()


async def _call(system: System, client: httpx.AsyncClient) -> None:
    history = system.history
    for number in count():
        prompt = f"call {number} plain"
        history.calls.add(prompt)
        try:
            answer = await client.post(f"/ai/run/{SERVED}", json={"prompt": prompt, "max_tokens": MOST_TOKENS})
        except httpx.TransportError as error:
            history.notes[f"calls: {type(error).__name__}"] += 1
        else:
            history.notes[f"calls: {answer.status_code}"] += 1
            right = answer.status_code == 200 and answer.json()["result"]["response"] == f"echo: {prompt}"
            if not right and answer.status_code not in (500, *TRY_AGAIN):
                history.wrong("misanswered", f"{prompt}: {answer.status_code} {answer.text[:200]}")
        await asyncio.sleep(PAUSE_SECONDS)
