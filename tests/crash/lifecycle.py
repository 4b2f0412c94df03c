"""Pauses, resumes, cancels and retries batches, and records what each operation implies for its batch."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx

from tests.crash.client import Client
from tests.crash.history import Batch, Halt, History

ALLOWED = (200, 409)  # 409: the state of the batch does not allow it


class Lifecycle:
    """The operations. `table` has the same form as `Load.table`."""

    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._history = history
        self.table: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {
            "pause": (2, self._pause),
            "resume": (3, self._resume),
            "cancel": (1, self._cancel),
            "cancel twice at once with a pause": (1, self._quarrel),
            "retry": (2, self._retry),
        }

    async def release(self) -> None:
        """Resume every batch that may be paused."""
        for batch in self._history.accepted:
            if "pause" in batch.asked and batch.final is None:
                await self._resume_now(batch)

    async def end_waiting(self, waiting: Sequence[Batch]) -> None:
        """Cancel those that would wait for ever."""
        for batch in waiting:
            if batch.unserved:
                await self._halt(batch, "cancel")

    async def _pause(self, rng: random.Random) -> None:
        if batch := self._pick(rng, final=False):
            await self._halt(batch, "pause")

    async def _cancel(self, rng: random.Random) -> None:
        if batch := self._pick(rng, final=False):
            await self._halt(batch, "cancel")

    async def _quarrel(self, rng: random.Random) -> None:
        if batch := self._pick(rng, final=False):
            await asyncio.gather(*(self._halt(batch, verb) for verb in ("cancel", "pause", "cancel")))

    async def _resume(self, rng: random.Random) -> None:
        paused = [batch for batch in self._history.accepted if "pause" in batch.asked and batch.final is None]
        if paused:
            await self._resume_now(rng.choice(paused))

    async def _retry(self, rng: random.Random) -> None:
        """Retry a final batch, or rarely one that is not final and cannot be retried."""
        if batch := self._pick(rng, final=rng.random() < 0.9):
            async with batch.settled:
                await self._retry_now(batch)

    def _pick(self, rng: random.Random, *, final: bool) -> Batch | None:
        found = [batch for batch in self._history.accepted if (batch.final is not None) == final]
        return rng.choice(found) if found else None

    async def _halt(self, batch: Batch, verb: str) -> None:
        """Pause or cancel. Soon after the response no item may start, unless a resume or retry was sent meanwhile."""
        batch.asked.add(verb)
        before, _ = batch.moves_against(verb)
        answer, _ = await self._client.until_answered(lambda: self._client.verb(batch, verb))
        self._known(batch, verb, answer.status_code)
        if answer.status_code == 200 and batch.moves_against(verb) == (before, False):
            batch.halts.append(Halt(verb, time.time()))
            batch.must_be_cancelled = batch.must_be_cancelled or verb == "cancel"

    async def _resume_now(self, batch: Batch) -> None:
        batch.begin("resume")
        answer, _ = await self._client.until_answered(lambda: self._client.verb(batch, "resume"))
        batch.end("resume")
        self._known(batch, "resume", answer.status_code)

    async def _retry_now(self, batch: Batch) -> None:
        """Retry. A new run starts unless the retry is refused. A request without a response may also start one, even later."""
        tries: list[float] = []

        async def ask() -> httpx.Response | None:
            tries.append(time.time())
            batch.retries.append(tries[-1])
            return await self._client.verb(batch, "retry")

        must, batch.must_be_cancelled = batch.must_be_cancelled, False
        batch.begin("retry")
        answer, lost = await self._client.until_answered(ask)
        batch.end("retry")
        self._known(batch, "retry", answer.status_code)
        if answer.status_code == 200 or lost:
            batch.final, batch.done = None, 0
            batch.late_retry = batch.late_retry or lost
        else:
            batch.retries = [at for at in batch.retries if at not in tries]
            batch.must_be_cancelled = must

    def _known(self, batch: Batch, verb: str, status: int) -> None:
        self._history.operations[f"{verb} {'done' if status == 200 else 'refused'}"] += 1
        if status not in ALLOWED:
            self._history.wrong("misanswered", f"{verb} of {batch.key}: {status}")
