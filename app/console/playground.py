"""One prompt over the API, synchronous and queued side by side, with a key that lives ten minutes."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import orjson

from app import clock, crypto
from app.api_url import known_url
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Database
from app.engines.event_stream import DONE, EventSplitter
from app.settings import Settings
from app.tenants import service as tenants

KEY_LIFETIME = timedelta(minutes=10)
PATIENCE_SECONDS = 30.0  # for the queued answer; it is not cancelled after that
_SYNC_SECONDS = 120.0
_POLL_SECONDS = 0.25
_PASSING = (429, 503)  # of a poll; the batch is there


@dataclass(slots=True)
class Outcome:
    """How a request went. Seconds count from its submission. `retry_after`: seconds after which a refused one may be sent again.
    `batch_id`: of the queued one; `waits_for`: what it waits for. None: not known, or not yet.
    """

    text: str = ""
    error: str = ""
    retry_after: int | None = None
    first_token: float | None = None
    seconds: float | None = None
    prompt: int = 0
    cached: int = 0
    output: int = 0
    batch_id: str = ""
    waits_for: str = ""

    def refuse(self, response: httpx.Response) -> None:
        """Note why a request was refused. Its body must have been read."""
        after = response.headers.get("retry-after", "")
        self.retry_after = int(after) if after.isdecimal() else None
        self.error = _message(response)

    def count(self, usage: dict[str, Any] | None) -> None:
        """Note the tokens of an answer."""
        used = usage or {}
        self.prompt, self.output = int(used.get("prompt_tokens") or 0), int(used.get("completion_tokens") or 0)
        self.cached = int((used.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked of which model."""

    account: str
    model: str
    prompt: str
    max_tokens: int

    @property
    def body(self) -> dict[str, Any]:
        """Of the chat request."""
        return {"messages": [{"role": "user", "content": self.prompt}], "max_tokens": self.max_tokens}


async def both(settings: Settings, database: Database, ask: Ask) -> tuple[Outcome, Outcome]:
    """Ask at once and through the queue. Neither raises: an error is part of the outcome. It is recorded with its key."""
    async with database.transaction() as conn:
        key = await tenants.create_key(
            conn, crypto.secret_key(settings), ask.account, "playground of the console", KEY_LIFETIME
        )
        await log.record(conn, Record(Act.PLAYGROUND_RUN, ask.model, ask.account, after={"key": key.key_id}))
    try:
        headers = {"authorization": f"Bearer {key}"}
        url = f"{known_url(settings)}/client/v4/accounts/{ask.account}/ai"
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_SYNC_SECONDS, trust_env=False) as client:
            return await asyncio.gather(_guarded(_at_once, client, ask), _guarded(_queued, client, ask))
    finally:
        async with database.transaction() as conn:
            await tenants.revoke_key(conn, key.key_id)


async def _guarded(call: Any, client: httpx.AsyncClient, ask: Ask) -> Outcome:
    outcome = Outcome()
    try:
        await call(client, ask, outcome)
    except httpx.HTTPError as error:
        outcome.error = f"The API does not answer ({type(error).__name__})."
    return outcome


async def _at_once(client: httpx.AsyncClient, ask: Ask, outcome: Outcome) -> None:
    began = clock.monotonic()
    body = {**ask.body, "model": ask.model, "stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", "/v1/chat/completions", json=body) as response:
        if response.status_code != 200:
            await response.aread()
            outcome.refuse(response)
            return
        async for event in _events(response):
            if event.get("error"):
                outcome.error = str(event["error"].get("message", "The stream broke off."))
            outcome.count(event["usage"]) if event.get("usage") else None
            piece = "".join((choice.get("delta") or {}).get("content") or "" for choice in event.get("choices") or [])
            if piece and outcome.first_token is None:
                outcome.first_token = clock.monotonic() - began
            outcome.text += piece
    outcome.seconds = clock.monotonic() - began


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    splitter = EventSplitter()
    async for block in response.aiter_bytes():
        for data in splitter.feed(block):
            if data != DONE:
                yield orjson.loads(data)


async def _queued(client: httpx.AsyncClient, ask: Ask, outcome: Outcome) -> None:
    began, path, query = clock.monotonic(), f"/run/{ask.model}", {"queueRequest": "true"}
    submitted = await client.post(path, params=query, json={"requests": [ask.body]})
    if submitted.status_code != 200:
        outcome.refuse(submitted)
        return
    outcome.batch_id = submitted.json()["result"]["request_id"]
    while clock.monotonic() - began < PATIENCE_SECONDS:
        await asyncio.sleep(_POLL_SECONDS)
        answer = await client.post(path, params=query, json={"request_id": outcome.batch_id})
        if answer.status_code in _PASSING:
            continue
        found = _result(answer)
        if found.get("responses"):  # whatever the status, which is 500 where every item has failed
            outcome.seconds = clock.monotonic() - began
            _read(found["responses"][0], outcome)
            return
        if answer.status_code != 200:
            outcome.refuse(answer)
            return
        outcome.waits_for = str((found.get("waiting") or {}).get("message") or "")


def _read(item: dict[str, Any], outcome: Outcome) -> None:
    if not item.get("success"):
        outcome.error = str((item.get("error") or {}).get("message") or item.get("error") or "The item failed.")
        return
    result = item.get("result") or {}
    choices = result.get("choices") or []
    outcome.text = str(result.get("response") or (choices[0]["message"].get("content") if choices else "") or "")
    outcome.count(result.get("usage"))


def _result(response: httpx.Response) -> dict[str, Any]:
    """What an envelope has; empty: it has nothing, or is none."""
    try:
        found = orjson.loads(response.content).get("result")
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _message(response: httpx.Response) -> str:
    """The error's own words, in either dialect."""
    try:
        found = orjson.loads(response.content)
        return str((found.get("error") or found["errors"][0])["message"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return f"The API answered with the status {response.status_code} and without a reason"
