"""Pipelines under attack: random definitions, and what their clients do."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from testing.waiting import LIMIT_SECONDS
from tests.crash.client import Client
from tests.crash.history import KINDS, SERVED, History
from tests.crash.money import ROOMY
from tests.crash.system import System

Json = dict[str, Any]

NAME = "pipe-"  # all prompts of pipelines begin with it
MOST_OPEN = 3
ENDED = ("completed", "failed", "cancelled", "expired")
_IN_USE = 409


@dataclass(eq=False)
class Pipeline:
    """One create: its definition with its input, and what is known of it."""

    key: str
    definition: Json
    public_id: str = ""
    state: str = "in_progress"

    @property
    def lines(self) -> list[Json]:
        """The lines of its input."""
        return list(self.definition["input"]["items"])


def definition(key: str, dice: random.Random) -> Json:
    """A map, then in any combination a fan-out, a condition, packs of both kinds, a pick and an item that is asked outside."""
    kinds = dice.choices(KINDS, (86, 4, 5, 5), k=dice.randint(1, 24))
    items = [
        {"custom_id": f"line-{n}", "kind": kind, "list": list(range(n % 4)), "best": n % 2}
        for n, kind in enumerate(kinds)
    ]
    prompt = f"{NAME}{key}-%s {{{{item.custom_id}}}}"
    stages = [
        _stage("ask", f"{prompt % 'ask'} {{{{item.kind}}}}"),
        _stage("part", f"{prompt % 'part'} {{{{each}}}}", each="item.list", max=3),
        _stage(
            "some", f"{prompt % 'some'} {{{{text}}}}", when="item.best == 1", otherwise=dice.choice(("drop", "pass"))
        ),
        _stage("whole", f"{prompt % 'whole'} {{{{count}}}} {{{{missing}}}}", pack={"of": "ask"}),
        {"id": "pick", "after": "ask", "when": "ok", "pick": {"from": "ask", "index": "item.best"}},
        {
            "id": "human",
            "after": "ask",
            "when": "ok",
            "external": {"timeout": "1h"},
            "body": {"of": "{{item.custom_id}}"},
        },
        _stage("near", f"{NAME}{key}-near {{{{parts.item.custom_id}}}}", after="input", pack={"size": 3}),
    ]
    chosen = stages[: dice.randint(1, 4)]
    chosen += [each for each in stages[4:] if dice.random() < 0.5]
    return {"name": key, "input": {"items": items}, "stages": chosen}


def _stage(name: str, prompt: str, **more: Any) -> Json:
    return {
        "id": name,
        "model": SERVED,
        "body": {"messages": [{"role": "user", "content": prompt}], "max_tokens": 8},
        **more,
    }


class Pipelines:
    """The operations. `table` has the same form as `Load.table`."""

    def __init__(self, system: System, client: Client, history: History, seed: int) -> None:
        self._system, self._client, self._history, self._seed = system, client, history, seed
        self._http: httpx.AsyncClient | None = None
        self.made: list[Pipeline] = []
        self.table: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {
            "create a pipeline": (6, self._create),
            "pause and resume a pipeline": (1, self._pause),
            "cancel a pipeline": (1, self._cancel),
            "answer from outside": (3, self._answer_any),
            "poll a pipeline": (3, self._poll_any),
        }

    @property
    def accepted(self) -> list[Pipeline]:
        """Those that the server has accepted."""
        return [each for each in self.made if each.public_id]

    async def rest(self) -> None:
        """When all faults have ended: answer what waits and resume what pauses, until all have ended."""
        deadline = time.monotonic() + LIMIT_SECONDS
        left = self.accepted
        while left and time.monotonic() < deadline:
            for each in left:
                await self._poll(each)
                if each.state == "paused":
                    await self._verb(each, "resume")
                await self._answer(each)
            left = [each for each in left if each.state not in ENDED]
            await asyncio.sleep(0.2)
        for each in left:
            self._history.wrong("kill_lost", f"{each.key} is {each.state} {LIMIT_SECONDS:.0f} s after all faults ended")

    async def close(self) -> None:
        """Close the connections."""
        if self._http:
            await self._http.aclose()

    async def _ask(self, method: str, path: str, again: Sequence[int] = (), **options: Any) -> httpx.Response:
        if self._http is None:
            headers = {"authorization": f"Bearer {self._system.keys[ROOMY]}"}
            self._http = httpx.AsyncClient(base_url=self._system.url, headers=headers, trust_env=False, timeout=8)
        http = self._http
        answer, _ = await self._client.until_answered(
            lambda: self._client.answer(http.request(method, f"/v1/pipelines{path}", **options)), tuple(again)
        )
        return answer

    async def _create(self, dice: random.Random) -> None:
        if sum(each.state not in ENDED for each in self.made) >= MOST_OPEN:
            return
        key = f"{self._seed}-{len(self.made)}"
        made = Pipeline(key, definition(key, dice))
        self.made.append(made)
        answer = await self._ask(
            "POST", "", [_IN_USE], json=made.definition, headers={"idempotency-key": f"{NAME}{key}"}
        )
        if answer.status_code != 200:
            self._history.wrong("misanswered", f"pipeline {key}: {answer.status_code} {answer.text[:300]}")
        else:
            made.public_id = answer.json()["id"]

    async def _pause(self, dice: random.Random) -> None:
        if found := self._open(dice):
            await self._verb(found, "pause")
            await asyncio.sleep(dice.uniform(0.1, 1))
            await self._verb(found, "resume")

    async def _cancel(self, dice: random.Random) -> None:
        if dice.random() < 0.3 and (found := self._open(dice)):
            await self._verb(found, "cancel")

    async def _answer_any(self, dice: random.Random) -> None:
        if found := self._open(dice):
            await self._answer(found)

    async def _poll_any(self, dice: random.Random) -> None:
        if found := self._open(dice):
            await self._poll(found)

    def _open(self, dice: random.Random) -> Pipeline | None:
        found = [each for each in self.accepted if each.state not in ENDED]
        return dice.choice(found) if found else None

    async def _verb(self, of: Pipeline, verb: str) -> None:
        answer = await self._ask("POST", f"/{of.public_id}/{verb}")
        if answer.status_code not in (200, 409):
            self._history.wrong("misanswered", f"{verb} of pipeline {of.key}: {answer.status_code} {answer.text[:200]}")

    async def _poll(self, of: Pipeline) -> None:
        answer = await self._ask("GET", f"/{of.public_id}")
        if answer.status_code != 200:
            return self._history.wrong("kill_lost", f"pipeline {of.key}: {answer.status_code} {answer.text[:200]}")
        state = answer.json()["status"]
        if of.state in ENDED and state != of.state:
            self._history.wrong("went_back", f"pipeline {of.key} was {of.state} and is {state}")
        of.state = state
        return None

    async def _answer(self, of: Pipeline) -> None:
        """Answer all that waits. Two who answer at once give the same answer."""
        if all(each["id"] != "human" for each in of.definition["stages"]):
            return
        answer = await self._ask("GET", f"/{of.public_id}/waiting")
        for item in answer.json()["data"] if answer.status_code == 200 else ():
            path = f"/{of.public_id}/items/{item['stage']}/{item['item']}/answer"
            said = await self._ask("POST", path, json={"answer": {"said": item["item"]}})
            if said.status_code not in (200, 409):
                self._history.wrong("misanswered", f"answer {path}: {said.status_code} {said.text[:200]}")
