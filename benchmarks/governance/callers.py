"""Callers that share one budget, and what became of it."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.gateway.installation import CHAT
from benchmarks.harness import MODEL, say

CALLERS = 64


@dataclass(frozen=True)
class Budgeted:
    """A proxy whose callers share one budget."""

    base: str
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Race:
    """What the callers got. `tokens`: of all answers; `statuses`: how often each was answered."""

    tokens: int
    statuses: Counter[int]


async def race(proxy: Budgeted, calls: int, answer_tokens: int) -> Race:
    """CALLERS callers, each with so many calls, one after the other, whatever the answers are."""
    tokens, statuses = 0, Counter[int]()

    async def caller(client: httpx.AsyncClient, number: int) -> None:
        nonlocal tokens
        for call in range(calls):
            message = {"role": "user", "content": f"question {number:02} {call:03}"}
            body = {"model": MODEL, "messages": [message], "max_tokens": answer_tokens}
            answer = await client.post(CHAT, json=body)
            statuses[answer.status_code] += 1
            if answer.status_code == 200:
                tokens += answer.json()["usage"]["total_tokens"]

    # The server closes a connection after five idle seconds, when httpx might just use it again.
    limits = httpx.Limits(max_connections=CALLERS, keepalive_expiry=2)
    async with httpx.AsyncClient(
        base_url=proxy.base, headers=dict(proxy.headers), limits=limits, timeout=120
    ) as client:
        await asyncio.gather(*(caller(client, number) for number in range(CALLERS)))
    return Race(tokens, statuses)


def figures(name: str, found: Race, budget: int) -> dict[str, Any]:
    """The overspend and the use of a budget of so many tokens, as shares of it."""
    over, served = max(0, found.tokens - budget), found.statuses[200]
    refused = sum(found.statuses.values()) - served
    say(f"{name}: {found.tokens:,} of {budget:,} tokens in {served} answers, {refused} calls refused")
    return {
        f"{name}_overspend_share": round(over / budget, 4),
        f"{name}_used_share": round(min(found.tokens, budget) / budget, 4),
        f"{name}_answers": served,
        f"{name}_refused": {str(status): n for status, n in sorted(found.statuses.items()) if status != 200},
    }
