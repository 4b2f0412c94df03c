"""A steady load: batches of a fixed size at a fixed rate, polled and read when they have ended, and single requests."""

import asyncio
import time
from collections import Counter
from typing import Any

import httpx

from testing.waiting import LIMIT_SECONDS
from tests.system.stack import ACCOUNT, MODEL, RUN

ITEMS = 50  # of a batch
SINGLE_SHARE = 0.1  # single requests for each item
_POLL_SECONDS = 1.0
_OPEN = {"queued", "running"}


class Load:
    """Sends requests until it is stopped, and counts what came of them."""

    def __init__(self, url: str, key: str, items_per_second: float) -> None:
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"authorization": f"Bearer {key}"},
            timeout=LIMIT_SECONDS,
            limits=httpx.Limits(max_connections=50),
        )
        self._rate = items_per_second
        self._running: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    async def run(self, until: float) -> None:
        """Send until this second of the monotonic clock, then wait for what was sent."""
        async with self._client:
            await asyncio.gather(
                self._every(ITEMS / self._rate, self._batch, until),
                self._every(1 / (self._rate * SINGLE_SHARE), self._single, until),
            )
            await asyncio.gather(*self._running)

    async def _every(self, seconds: float, act: Any, until: float) -> None:
        due = time.monotonic()
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(act())
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            due += seconds

    async def _batch(self) -> None:
        self.counts["batches"] += 1
        items = [{"prompt": f"item {n} of batch {self.counts['batches']}", "max_tokens": 8} for n in range(ITEMS)]
        answer = await self._client.post(RUN, params={"queueRequest": "true"}, json={"requests": items})
        if answer.status_code != 200:
            self.counts["refused"] += 1
            return
        request = {"request_id": answer.json()["result"]["request_id"]}
        while (found := await self._poll(request)).get("status") in _OPEN:
            await asyncio.sleep(_POLL_SECONDS)
        self.counts["answers"] += sum(bool(each.get("success")) for each in found.get("responses", ()))
        await self._client.get(f"/client/v4/accounts/{ACCOUNT}/ai/batches", params={"limit": 5})

    async def _poll(self, request: dict[str, str]) -> dict[str, Any]:
        answer = await self._client.post(RUN, json=request)
        if answer.status_code != 200:
            self.counts["polls_failed"] += 1
            return {"status": "running"}
        found: dict[str, Any] = answer.json()["result"]
        return found

    async def _single(self) -> None:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "stream": True}
        answer = await self._client.post("/v1/chat/completions", json=body)
        self.counts["single" if answer.status_code == 200 else "single_failed"] += 1
