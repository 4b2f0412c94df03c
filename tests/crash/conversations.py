"""Conversations under attack: turns whose callers wait, and turns in the background, of which several come at once."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from testing.waiting import LIMIT_SECONDS
from tests.crash.client import TRY_AGAIN, Client
from tests.crash.history import SERVED, History
from tests.crash.system import TALKER, System

NAME = "talk-"  # the text of each turn begins with it
MOST = 4
MOST_WAITING = 2  # turns of one conversation without an answer
KINDS = ("plain", "slow", "flaky")
_ENDED = ("completed", "failed", "cancelled", "incomplete")


@dataclass(eq=False)
class Said:
    """A turn that a client sends, under its text as key, until it has an answer. `response_id`: of the answer, or of the response
    in the background that was accepted. `answer`: its text.
    """

    text: str
    background: bool
    response_id: str = ""
    answer: str | None = None


@dataclass(eq=False)
class Talk:
    """A conversation, and what clients say in it."""

    public_id: str
    said: list[Said] = field(default_factory=list)

    @property
    def waiting(self) -> list[Said]:
        """What has no answer yet."""
        return [each for each in self.said if each.answer is None]


class Conversations:
    """The operations, each one attempt. `table` has the same form as `Load.table`."""

    def __init__(self, system: System, client: Client, history: History) -> None:
        self._system, self._client, self._history = system, client, history
        self._http: httpx.AsyncClient | None = None
        self.talks: list[Talk] = []
        self.table: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {"say": (8, self._say)}

    async def rest(self) -> None:
        """When all faults have ended: try until everything has its answer."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while (left := [each for each in self.talks if each.waiting]) and time.monotonic() < deadline:
            await asyncio.gather(*(self._attempt(talk, talk.waiting[0]) for talk in left))
            await asyncio.sleep(0.1)
        for talk in left:
            for said in talk.waiting:
                self._history.wrong("kill_lost", f"{said} has no answer {LIMIT_SECONDS:.0f} s after all faults ended")

    async def close(self) -> None:
        """Close the connections."""
        if self._http:
            await self._http.aclose()

    async def _ask(self, method: str, path: str, **options: Any) -> httpx.Response | None:
        if self._http is None:
            headers = {"authorization": f"Bearer {self._system.keys[TALKER]}"}
            self._http = httpx.AsyncClient(base_url=self._system.url, headers=headers, trust_env=False, timeout=8)
        return await self._client.answer(self._http.request(method, f"/v1{path}", **options))

    async def _say(self, dice: random.Random) -> None:
        if len(self.talks) < MOST:
            made = await self._ask("POST", "/conversations", json={})
            if made is None or made.status_code != 200:
                return
            self.talks.append(Talk(made.json()["id"]))
        talk = dice.choice(self.talks)
        waiting = talk.waiting
        if len(waiting) < MOST_WAITING:
            text = f"{NAME}{self.talks.index(talk)}-{len(talk.said)} {dice.choices(KINDS, (90, 5, 5))[0]}"
            talk.said.append(Said(text, background=dice.random() < 0.4))
            waiting = talk.said[-1:]
        await self._attempt(talk, dice.choice(waiting))

    async def _attempt(self, talk: Talk, said: Said) -> None:
        """Send a turn, or look for its answer. Whoever is told that it failed sends it again."""
        path = f"/responses/{said.response_id}"
        if not said.response_id:
            found = await self._send(talk, said)
        else:
            answer = await self._ask("GET", path)
            found = None if answer is None or answer.status_code in TRY_AGAIN else self._read(said, answer)
        if found is None or said.answer is not None:
            return
        if said.response_id not in ("", found["id"]):
            self._history.wrong("kill_doubled", f"{said} became {found['id']}")
        if said.background:
            said.response_id = found["id"]
        if found["status"] == "completed":
            said.response_id, said.answer = found["id"], found["output"][0]["content"][0]["text"]
        elif found["status"] in _ENDED and said.background:
            self._history.wrong("kill_lost", f"{said} is {found['status']}")
            said.answer = ""

    async def _send(self, talk: Talk, said: Said) -> dict[str, Any] | None:
        body = {"model": SERVED, "conversation": talk.public_id, "input": said.text}
        body |= {"background": True} if said.background else {"stream": len(said.text) % 2 == 0}
        answer = await self._ask("POST", "/responses", json=body, headers={"idempotency-key": said.text})
        if (
            answer is None
            or answer.status_code in (408, 409, 502, 504, *TRY_AGAIN)
            or "conversation_locked" in answer.text
        ):
            return None
        return self._read(said, answer)

    def _read(self, said: Said, answer: httpx.Response) -> dict[str, Any] | None:
        """The response. None: its stream was cut off, or tells of an error."""
        if answer.status_code != 200:
            self._history.wrong("misanswered", f"{said}: {answer.status_code} {answer.text[:200]}")
            return None
        if not answer.headers["content-type"].startswith("text/event-stream"):
            return dict(answer.json())
        events = [orjson.loads(line[5:]) for line in answer.text.splitlines() if line.startswith("data:")]
        return next((each["response"] for each in events if each.get("type") == "response.completed"), None)
