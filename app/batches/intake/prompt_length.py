"""Prompts that may be too long for their model: an engine counts their tokens before they are queued.

Counted are only prompts whose estimate is near the limit, a few of each submit and within a time limit. Others are accepted. If
one is too long, the engine refuses it later, and the item ends with an error that has both numbers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app import off_loop
from app.batches.validation.text_generation import ItemFacts, ItemRules
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import context_window, service
from app.engines.client import EngineClient
from app.engines.engine_key import engine_headers
from app.engines.requests import Target, build
from app.engines.service import Engine
from app.errors import BadInput
from app.openai_codes import OpenAICode
from app.settings import Settings
from app.states import EngineState

MOST_COUNTED = 16  # of one submit
_AT_ONCE, _SECONDS = 4, 3.0
_MARGIN = 4 / 3  # ordinary text may have this many times the estimated tokens


@dataclass(frozen=True, slots=True)
class LongItem:
    """An item that may be too long, and its place in the submit; empty: it is the whole body."""

    where: str
    item: dict[str, Any]


def may_not_fit(facts: ItemFacts, rules: ItemRules) -> bool:
    """Whether the estimate is near the limit."""
    prompt = facts.est_tokens - facts.answer_tokens
    return prompt * _MARGIN + facts.answer_tokens > rules.context_window


async def check(
    database: Database,
    settings: Settings,
    target: Target,
    endpoint: str,
    items: Sequence[LongItem],
    *,
    open_ended: bool = False,
) -> None:
    """Raise BadInput for the first item that is too long. Without a ready engine of the model nothing is counted."""
    if not items or (engine := await _ready(database, target.model)) is None:
        return
    headers = engine_headers(settings, secret_key(settings), engine.name, engine.mode)
    room = asyncio.Semaphore(_AT_ONCE)
    async with EngineClient(engine.url, headers, timeout_seconds=_SECONDS) as client:

        async def problem(each: LongItem) -> str | None:
            made = partial(build, open_ended=open_ended)
            request = await off_loop.done(each.item, made, each.item, endpoint, target, "")
            async with room:
                count = await client.count(request)
            if count is None:
                return None
            limit = await off_loop.done(request.body, context_window.answer_tokens, request)
            return count.problem(limit, target.context_window)

        tasks = [asyncio.create_task(problem(each)) for each in items[:MOST_COUNTED]]
        await asyncio.wait(tasks, timeout=_SECONDS)
        problems = [task.result() if task.done() else task.cancel() for task in tasks]
        await asyncio.gather(*tasks, return_exceptions=True)
    for each, message in zip(items, problems, strict=False):
        if isinstance(message, str):
            field = next(
                (name for name in ("messages", "prompt", "input") if each.item.get(name) is not None), "prompt"
            )
            raise BadInput(
                ".".join(part for part in (each.where, field) if part) + f": {message}",
                param=field,
                reason=OpenAICode.TOO_LONG,
            )


async def _ready(database: Database, served: str) -> Engine | None:
    async with database.relaxed() as conn:
        engines = await service.list_engines(conn)
    ready = (e for e in engines if e.model == served and e.controlled and e.state == EngineState.READY)
    return next(ready, None)
