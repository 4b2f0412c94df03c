"""Raises the tight budgets of a run, and changes which budgets apply to queued work."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from tests.crash.client import Client
from tests.crash.history import Batch, History
from tests.crash.money import STRICT, WORKFLOWS, Tight, tight_budgets

SECOND = "second"  # a roomy budget of one workflow, which comes and goes
RELIEF_SECONDS = 1.0
RELIEF_STEPS = 4


class Budgets:
    """The operations. `table` has the same form as `Load.table`."""

    def __init__(self, client: Client, history: History) -> None:
        self._client = client
        self._history = history
        self._tight = tight_budgets()
        self._changing = asyncio.Lock()
        self._relief_at = 0.0
        self.table: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {
            "raise a budget": (4, self._raise_any),
            "change budgets": (2, self._change_second),
        }

    async def relieve(self, waiting: Sequence[Batch]) -> None:
        """Where batches are not final although all faults have ended, and their money may have: raise it by RELIEF_STEPS, once in
        RELIEF_SECONDS. That much is enough for any chunk.
        """
        if time.monotonic() < self._relief_at:
            return
        self._relief_at = time.monotonic() + RELIEF_SECONDS
        accounts = {batch.tenant for batch in waiting}
        for tight in self._tight:
            if tight.account in accounts:
                await self._raise_ended(tight, RELIEF_STEPS, RELIEF_STEPS * tight.step)

    async def _raise_any(self, rng: random.Random) -> None:
        tight = rng.choice(self._tight)
        await self._raise_ended(tight, 1, tight.item)

    async def _raise_ended(self, tight: Tight, steps: int, needed: int) -> None:
        """Raise a budget if less than `needed` is left."""
        if tight.left(await self._client.unspent(tight.account, tight.name)) < needed:
            self._history.notes[f"times that the {tight.currency or 'tokens'} of {tight.account} had ended"] += 1
            await self._raise(tight, steps)

    async def _raise(self, tight: Tight, steps: int) -> None:
        """Raise the maximum. The same terms again, after a lost answer, do no harm."""
        async with tight.changing:
            tight.max += steps * tight.step
            self._check("raise", await self._client.budget(tight.account, tight.name, tight.given()))

    async def _change_second(self, rng: random.Random) -> None:
        """Add a second budget, make it another workflow's, or remove it: queued chunks get other budgets."""
        async with self._changing:
            workflow = rng.choice((*WORKFLOWS, None))
            terms = {"max_tokens": 10**9, "workflow": workflow, "period": "total"} if workflow else None
            status = await self._client.budget(STRICT, SECOND, terms)
            self._check("change of budgets", 200 if status == 404 and terms is None else status)

    def _check(self, what: str, status: int) -> None:
        if status != 200:
            self._history.wrong("misanswered", f"{what}: {status}")
