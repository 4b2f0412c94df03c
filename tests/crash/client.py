"""An HTTP client with a key for each tenant. It repeats a request until it gets a final response."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx

from tests.crash.history import Batch, History
from tests.crash.system import TENANTS, System

SUBSCRIPTIONS = "/event_subscriptions/subscriptions"
TRY_AGAIN = (429, 503, 507)  # statuses after which a client should try again
MOST_TOKENS = 8  # of an answer; the fake engine gives fewer
PATIENCE = 400
EVENTS = [f"batch.{kind}" for kind in ("queued", "succeeded", "failed", "cancelled", "expired")]
ITEM_EVENTS = ["item.succeeded", "item.failed"]


class Client:
    """The clients of all tenants. `options` are those of their connections."""

    options: Mapping[str, Any] = {"timeout": 4}

    def __init__(self, system: System, history: History) -> None:
        self._system = system
        self._history = history
        self._clients: dict[str, httpx.AsyncClient] = {}

    async def start(self) -> None:
        """Log in and subscribe to every event."""
        for tenant in TENANTS:
            base = f"{self._system.url}/client/v4/accounts/{tenant}"
            headers = {"authorization": f"Bearer {self._system.keys[tenant]}"}
            client = httpx.AsyncClient(base_url=base, headers=headers, trust_env=False, **self.options)
            self._clients[tenant] = client
            await self.subscribe(tenant, tenant)

    async def subscribe(self, tenant: str, name: str, events: Sequence[str] = EVENTS) -> tuple[str, str]:
        """Register an endpoint at the receiver. Returns its id and its name.

        Each try has a name of its own, because the try before may have registered an endpoint although its answer was lost.
        """
        client, names = self._clients[tenant], [name]

        def ask() -> Awaitable[httpx.Response | None]:
            body = {
                "name": "crash",
                "source": {"type": "workersAi.model"},
                "destination": {"type": "webhook", "url": f"{self._system.receiver.url}/{names[-1]}"},
                "events": list(events),
            }
            names.append(f"{name}-{len(names) + 1}")
            return self.answer(client.post(SUBSCRIPTIONS, json=body))

        answer, _ = await self.until_answered(ask)
        result = answer.json()["result"]
        self._system.receiver.secrets[names[-2]] = result["destination"]["secret"]
        return str(result["id"]), names[-2]

    async def unsubscribe(self, tenant: str, endpoint_id: str) -> None:
        """Delete an endpoint. An earlier try whose response was lost may have deleted it."""
        client = self._clients[tenant]
        path = f"{SUBSCRIPTIONS}/{endpoint_id}"
        answer, lost = await self.until_answered(lambda: self.answer(client.delete(path)))
        if answer.status_code != 200 and not (lost and answer.status_code == 404):
            self._history.wrong("misanswered", f"deletion of an endpoint: {answer.status_code} {answer.text[:200]}")

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()

    async def submit(self, batch: Batch) -> httpx.Response | None:
        """One attempt to submit a batch under its key."""
        items = [
            {"prompt": prompt, "external_reference": prompt, "max_tokens": MOST_TOKENS} for prompt in batch.prompts
        ]
        headers = {"idempotency-key": batch.key, **batch.labels}
        if batch.form == "ndjson":
            headers["content-type"] = "application/x-ndjson"
            content = "".join(json.dumps(item) + "\n" for item in items)
        else:
            headers["content-type"] = "application/json"
            content = json.dumps({"requests": items})
        query = {"queueRequest": "true"} | ({"completion_window": f"{batch.window}s"} if batch.window else {})
        client = self._submits(batch.tenant)
        return await self.answer(client.post(_run(batch), params=query, content=content, headers=headers))

    def _submits(self, tenant: str) -> httpx.AsyncClient:
        """The client that makes the next submit of a tenant."""
        return self._clients[tenant]

    async def poll(self, tenant: str, batch: Batch) -> httpx.Response | None:
        """One attempt to poll a batch by its request id."""
        return await self.answer(self._clients[tenant].post(_run(batch), json={"request_id": batch.request_id}))

    async def verb(self, batch: Batch, verb: str) -> httpx.Response | None:
        """One attempt to pause, resume, cancel or retry."""
        return await self.answer(self._clients[batch.tenant].post(f"/ai/batches/{batch.request_id}/{verb}"))

    async def budget(self, account: str, name: str, terms: dict[str, Any] | None) -> int:
        """Set a budget, or remove it. Returns the status."""
        client, path = self._clients[account], f"/ai/budgets/{name}"
        ask = (lambda: client.delete(path)) if terms is None else (lambda: client.put(path, json=terms))
        answer, _ = await self.until_answered(lambda: self.answer(ask()))
        return answer.status_code

    async def unspent(self, account: str, name: str) -> float:
        """What a budget has not spent, in tokens or in its currency."""
        answer, _ = await self.until_answered(lambda: self.answer(self._clients[account].get("/ai/budgets")))
        return next(budget["max"] - budget["spent"] for budget in answer.json()["result"] if budget["name"] == name)

    async def until_answered(
        self, ask: Callable[[], Awaitable[httpx.Response | None]], again: tuple[int, ...] = ()
    ) -> tuple[httpx.Response, bool]:
        """The first response after which a client need not try again, and whether a response was lost before it."""
        lost = False
        for _ in range(PATIENCE):
            answer = await ask()
            if answer is not None and answer.status_code not in (*TRY_AGAIN, *again):
                return answer, lost
            lost = lost or answer is None or answer.status_code == 503
            await asyncio.sleep(0.2)
        raise AssertionError(f"no answer in {PATIENCE} tries")

    async def answer(self, call: Awaitable[httpx.Response]) -> httpx.Response | None:
        """A response; None if there was none, or an error after which to try again."""
        try:
            answer = await call
        except httpx.TransportError as error:
            self._history.answers[type(error).__name__] += 1
            return None
        final = '"responses"' in answer.text  # a batch without any success has the status of an error
        self._history.answers[f"{answer.status_code}{' (final batch)' if final and answer.is_error else ''}"] += 1
        return None if answer.status_code == 500 and not final else answer


def _run(batch: Batch) -> str:
    return f"/ai/run/{batch.model}"
