"""Clients: they submit, repeat, poll and pry over HTTP, and hold the server to what it has told them."""

import asyncio
import hashlib
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

from tests.crash.engines import REFUSAL
from tests.crash.history import KINDS, Batch, History
from tests.crash.system import TENANTS, System

MODEL = "smollm2-135m-instruct"
SIZES = ((1, 1), (2, 10), (11, 60), (61, 300))
MOST_OPEN_ITEMS = 900
AGAIN = (409, 429, 503, 507)  # try again, says the server
EVENTS = ["batch.queued", "batch.succeeded", "batch.failed"]


class Load:
    """All clients of one run. Operations are the rows of `table`: name → (weight, coroutine)."""

    def __init__(self, system: System, history: History, seed: int) -> None:
        self._system = system
        self._history = history
        self._seed = seed
        self._clients: dict[str, httpx.AsyncClient] = {}
        self.table: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {
            "submit": (10, self._submit_new),
            "submit twice at once": (3, self._submit_twice),
            "submit again": (2, self._submit_again),
            "submit other items under a used key": (1, self._submit_other),
            "poll": (14, self._poll_any),
            "poll as a stranger": (1, self._poll_foreign),
        }

    async def start(self) -> None:
        """Clients with keys and subscriptions."""
        for tenant in TENANTS:
            base = f"{self._system.url}/client/v4/accounts/{tenant}"
            headers = {"authorization": f"Bearer {self._system.keys[tenant]}"}
            client = httpx.AsyncClient(base_url=base, headers=headers, timeout=4, trust_env=False)
            self._clients[tenant] = client
            body = {
                "name": "crash",
                "source": {"type": "workersAi.model"},
                "destination": {"type": "webhook", "url": f"{self._system.receiver.url}/{tenant}"},
                "events": EVENTS,
            }
            answer = await client.post("/event_subscriptions/subscriptions", json=body)
            self._system.receiver.secrets[tenant] = answer.json()["result"]["destination"]["secret"]

    async def close(self) -> None:
        """Hang up."""
        for client in self._clients.values():
            await client.aclose()

    async def run(self, number: int, until: asyncio.Event) -> None:
        """One client at work. What it has begun it ends, though `until` be set."""
        rng = random.Random(f"{self._seed}/load/{number}")
        names = list(self.table)
        weights = [self.table[name][0] for name in names]
        while not until.is_set():
            [name] = rng.choices(names, weights)
            if name.startswith("submit") and self._history.open_items > MOST_OPEN_ITEMS:
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

    async def _submit_again(self, rng: random.Random) -> None:
        if accepted := self._history.accepted:
            await self._submit(rng.choice(accepted))

    async def _submit_other(self, rng: random.Random) -> None:
        if not (accepted := self._history.accepted):
            return
        used = rng.choice(accepted)
        other = Batch(used.key, used.tenant, [*used.prompts, "one more"], used.form)
        answer = await self._until_answered(used.tenant, lambda: self._post_batch(other))
        if answer.status_code != 422:
            self._history.wrong("misanswered", f"other items under {used.key}: {answer.status_code}")

    def _new(self, rng: random.Random) -> Batch:
        key = f"b{len(self._history.batches)}"
        size = rng.randint(*rng.choice(SIZES))
        kinds = rng.choices(KINDS, (92, 1, 4, 3), k=size) if rng.random() < 0.95 else ["refuse"] * size
        prompts = [f"{key} item {seq} {kind}" for seq, kind in enumerate(kinds)]
        batch = Batch(key, rng.choice(TENANTS), prompts, rng.choice(("json", "ndjson")))
        self._history.batches.append(batch)
        self._history.operations["items"] += size
        return batch

    async def _submit(self, batch: Batch) -> None:
        """Submit under the batch's key until there is an answer, which must always be the same."""
        answer = await self._until_answered(batch.tenant, lambda: self._post_batch(batch))
        if answer.status_code != 200:
            return self._history.wrong("misanswered", f"submit of {batch.key}: {answer.status_code} {answer.text[:200]}")
        batch.request_ids.add(answer.json()["result"]["request_id"])
        if len(batch.request_ids) > 1:
            self._history.wrong("duplicated", f"{batch.key} became {sorted(batch.request_ids)}")
        return None

    async def _post_batch(self, batch: Batch) -> httpx.Response:
        items = [{"prompt": prompt, "external_reference": prompt, "max_tokens": 16} for prompt in batch.prompts]
        headers = {"idempotency-key": batch.key}
        if batch.form == "ndjson":
            headers["content-type"] = "application/x-ndjson"
            content = "".join(json.dumps(item) + "\n" for item in items)
        else:
            headers["content-type"] = "application/json"
            content = json.dumps({"requests": items})
        url = f"/ai/run/{MODEL}?queueRequest=true"
        return await self._clients[batch.tenant].post(url, content=content, headers=headers)

    async def _until_answered(
        self, tenant: str, send: Callable[[], Awaitable[httpx.Response]], tries: int = 400
    ) -> httpx.Response:
        """The first answer that does not ask to try again."""
        for _ in range(tries):
            answer = await self._ask(send)
            if answer is not None and answer.status_code not in AGAIN:
                return answer
            await asyncio.sleep(0.2)
        raise AssertionError(f"{tenant} got no answer in {tries} tries")

    async def _ask(self, send: Callable[[], Awaitable[httpx.Response]]) -> httpx.Response | None:
        """An answer; None when there was none, or one that blames the server without a final word."""
        try:
            answer = await send()
        except httpx.TransportError as error:
            self._history.answers[type(error).__name__] += 1
            return None
        final = '"responses"' in answer.text  # of a batch in which nothing succeeded, with status 500
        self._history.answers[f"{answer.status_code}{' (failed batch)' if final and answer.is_error else ''}"] += 1
        if answer.status_code == 500 and not final:
            return None
        return answer

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
        answer = await self._ask(lambda: self._post_poll(stranger, batch))
        if answer is not None and answer.status_code not in (404, *AGAIN):
            self._history.wrong("misanswered", f"{stranger} sees {batch.key}: {answer.status_code}")

    async def poll(self, batch: Batch) -> bool:
        """Look at a batch once. True: it is final, and was examined."""
        final, known = batch.final, batch.done  # what was known before the question was asked
        answer = await self._ask(lambda: self._post_poll(batch.tenant, batch))
        if answer is None or answer.status_code in AGAIN:
            return False
        if answer.status_code == 404:
            self._history.wrong("lost", f"{batch.key} was accepted and is unknown now", len(batch.prompts))
            return False
        result = answer.json()["result"]
        if "responses" in result:
            self._examine(batch, result["responses"])
            return True
        progress = result["progress"]
        done = progress["succeeded"] + progress["failed"]
        if final is not None:
            self._history.wrong("went_back", f"{batch.key} was final and is {result['status']} now")
        if done < known:
            self._history.wrong("went_back", f"{batch.key} had {known} results and has {done} now")
        if progress["total"] != len(batch.prompts) or done > progress["total"]:
            self._history.wrong("unaccounted", f"{batch.key} of {len(batch.prompts)} reports {progress}")
        batch.done = max(batch.done, done)
        return False

    async def _post_poll(self, tenant: str, batch: Batch) -> httpx.Response:
        return await self._clients[tenant].post(f"/ai/run/{MODEL}", json={"request_id": batch.request_id})

    def _examine(self, batch: Batch, responses: list[dict[str, Any]]) -> None:
        """A final answer: every item once, in order, each with its own answer; and for ever the same."""
        digest = hashlib.sha256(json.dumps(responses).encode()).hexdigest()
        if batch.final is not None:
            if digest != batch.final:
                self._history.wrong("went_back", f"the final answer of {batch.key} has changed")
            return
        batch.final, batch.done = digest, len(batch.prompts)
        if len(responses) != len(batch.prompts):
            missing = len(batch.prompts) - len(responses)
            what = "lost" if missing > 0 else "duplicated"
            self._history.wrong(what, f"{batch.key} answers {len(responses)} of {len(batch.prompts)}", abs(missing))
        for seq, (prompt, response) in enumerate(zip(batch.prompts, responses, strict=False)):
            if response["id"] != seq or response["external_reference"] != prompt:
                self._history.wrong("wrongly_ordered", f"{batch.key} {seq}: {str(response)[:200]}")
            elif response["success"] == batch.refused(seq):
                self._history.wrong("wrong_kind", f"{batch.key} {seq} ({prompt}): {str(response)[:300]}")
            elif response["success"] and response["result"]["response"] != f"echo: {prompt}":
                self._history.wrong("wrongly_ordered", f"{batch.key} {seq} has the answer of another: {response}")
            elif not response["success"] and REFUSAL not in str(response["error"]):
                self._history.wrong("wrong_kind", f"{batch.key} {seq} failed otherwise: {response['error']}")
