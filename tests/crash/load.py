"""The load: clients submit, repeat submits, poll, try foreign ids, pause, cancel or retry batches,
and change budgets.

They check every response against the earlier ones.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.crash.budgets import Budgets
from tests.crash.client import TRY_AGAIN, Client
from tests.crash.examine import examine_final, examine_pending
from tests.crash.history import KINDS, UNSERVED, Batch, History
from tests.crash.lifecycle import Lifecycle
from tests.crash.money import labels, models_of
from tests.crash.system import TENANTS

SIZES = ((1, 1), (2, 10), (11, 60), (61, 300))
WINDOWS = (2, 5)  # seconds until a batch with a deadline expires
KEY_IN_USE = 409

Operation = Callable[[random.Random], Awaitable[None]]


class Load:
    """The operations of all clients. The rows of `table` are name → (weight, coroutine)."""

    most_open_items = 900

    def __init__(self, client: Client, history: History, seed: int) -> None:
        self.lifecycle = Lifecycle(client, history)
        self.budgets = Budgets(client, history)
        self._client = client
        self._history = history
        self._seed = seed
        self.table: dict[str, tuple[int, Operation]] = {
            "submit": (10, self._submit_new),
            "submit twice at once": (3, self._submit_twice),
            "submit again": (2, self._submit_again),
            "submit for a model that no engine serves": (1, self._submit_unserved),
            "submit other items under a used key": (1, self._submit_other),
            "poll": (14, self._poll_any),
            "poll as a stranger": (1, self._poll_foreign),
            **self.lifecycle.table,
            **self.budgets.table,
        }

    async def run(self, number: int, until: asyncio.Event) -> None:
        """Run one client until `until` is set. It finishes the operation that it has started."""
        rng = random.Random(f"{self._seed}/load/{number}")
        names = list(self.table)
        weights = [self.table[name][0] for name in names]
        while not until.is_set():
            [name] = rng.choices(names, weights)
            if name.startswith("submit") and self._history.open_items > self.most_open_items:
                name = "poll"
            self._history.operations[name] += 1
            await self.table[name][1](rng)
            await asyncio.sleep(rng.uniform(0.02, 0.25))

    # ------------------------------------------------------------ submits

    async def _submit_new(self, rng: random.Random) -> None:
        await self._submit(self._new(rng))

    async def _submit_twice(self, rng: random.Random) -> None:
        batch = self._new(rng)
        await asyncio.gather(self._submit(batch), self._submit(batch))

    async def _submit_unserved(self, rng: random.Random) -> None:
        """A small batch that waits to the end, and takes no money from others meanwhile."""
        key = f"b{len(self._history.batches)}"
        prompts = [f"{key} item {seq} plain" for seq in range(rng.randint(1, 4))]
        batch = Batch(key, rng.choice(TENANTS), prompts, "json", model=UNSERVED)
        self._history.batches.append(batch)
        self._history.operations["items"] += len(prompts)
        await self._submit(batch)

    async def _submit_again(self, rng: random.Random) -> None:
        if accepted := self._history.accepted:
            await self._submit(rng.choice(accepted))

    async def _submit_other(self, rng: random.Random) -> None:
        if not (accepted := self._history.accepted):
            return
        used = rng.choice(accepted)
        other = Batch(used.key, used.tenant, [*used.prompts, "one more"], used.form, model=used.model)
        answer, _ = await self._client.until_answered(lambda: self._client.submit(other), (KEY_IN_USE,))
        if answer.status_code != 422:
            self._history.wrong("misanswered", f"other items under {used.key}: {answer.status_code}")

    def _new(self, rng: random.Random) -> Batch:
        key = f"b{len(self._history.batches)}"
        size = rng.randint(*rng.choice(SIZES))
        kinds = rng.choices(KINDS, (90, 3, 4, 3), k=size) if rng.random() < 0.95 else ["refuse"] * size
        prompts = [f"{key} item {seq} {kind}" for seq, kind in enumerate(kinds)]
        window = rng.randint(*WINDOWS) if rng.random() < 0.1 else None
        tenant = rng.choice(TENANTS)
        model = rng.choice(models_of(tenant))
        batch = Batch(key, tenant, prompts, rng.choice(("json", "ndjson")), window, labels(rng), model)
        self._history.batches.append(batch)
        self._history.operations["items"] += size
        return batch

    async def _submit(self, batch: Batch) -> None:
        """Submit with the batch's key until there is a response. Every response must have the same id."""
        answer, _ = await self._client.until_answered(lambda: self._client.submit(batch), (KEY_IN_USE,))
        if answer.status_code != 200:
            said = f"submit of {batch.key}: {answer.status_code} {answer.text[:200]}"
            return self._history.wrong("misanswered", said)
        batch.accept(answer.json()["result"]["request_id"])
        if len(batch.request_ids) > 1:
            self._history.wrong("duplicated", f"{batch.key} became {sorted(batch.request_ids)}")
        return None

    # ------------------------------------------------------------ polls

    async def _poll_any(self, rng: random.Random) -> None:
        known = self._history.accepted
        running = [batch for batch in known if batch.final is None]
        if running and rng.random() < 0.8:
            known = running
        if known:
            await self.poll(rng.choice(known))

    async def _poll_foreign(self, rng: random.Random) -> None:
        if not (accepted := self._history.accepted):
            return
        batch = rng.choice(accepted)
        stranger = rng.choice([tenant for tenant in TENANTS if tenant != batch.tenant])
        answer = await self._client.poll(stranger, batch)
        if answer is not None and answer.status_code not in (404, *TRY_AGAIN):
            self._history.wrong("misanswered", f"{stranger} sees {batch.key}: {answer.status_code}")

    async def poll(self, batch: Batch) -> bool:
        """Poll a batch once and check the response. Returns whether the batch is final."""
        async with batch.settled:  # during a retry the expected state is unknown
            final, known = batch.final, batch.done  # known before the request is sent
            answer = await self._client.poll(batch.tenant, batch)
            if answer is None or answer.status_code in TRY_AGAIN:
                return False
            if answer.status_code == 404:
                self._history.wrong("lost", f"{batch.key} was accepted and is unknown now", len(batch.prompts))
                return False
            result = answer.json()["result"]
            if "responses" in result:
                examine_final(self._history, batch, result["responses"])
                return True
            examine_pending(self._history, batch, result, was_final=final is not None, known=known)
            return False
