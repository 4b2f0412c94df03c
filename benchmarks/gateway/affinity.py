"""Arm: the prefix-cache hit rate of two engines, with session affinity and without.

Each turn of a conversation sends all earlier messages and a new one. Conversations share no prefix. They run at the same time
with random pauses, so that their turns do not alternate with those of the engines.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import orjson

from benchmarks.gateway.http_client import HttpCaller, HttpTarget
from benchmarks.harness import MODEL, say

SESSION = "x-session-affinity"
_TOPIC_WORDS = (
    "harbour copper forest letter table cloud engine music winter orange bridge paper garden window stone".split()
)


async def hit_rate(
    target: HttpTarget, *, turns: int, conversations: int, sessions: bool, pause: float, seed: int
) -> float:
    """Cached tokens divided by prompt tokens, over all turns."""
    label = f"{'session' if sessions else 'none'} {turns} {seed}"
    counts = [0, 0]

    async def converse(number: int) -> None:
        rng = random.Random(f"{label} {number}")
        headers = ((SESSION, f"{label} {number}"),) if sessions else ()
        messages: list[dict[str, str]] = []
        await asyncio.sleep(rng.uniform(0, pause * 4))
        for _ in range(turns):
            messages.append(
                {"role": "user", "content": f"{label} {number}: " + " ".join(rng.choices(_TOPIC_WORDS, k=60))}
            )
            body = {"model": MODEL, "messages": messages, "max_tokens": 16}
            answer = orjson.loads((await caller.post(orjson.dumps(body), headers)).body)
            usage = answer["usage"]
            counts[0] += usage["prompt_tokens"]
            counts[1] += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"] or ""})
            await asyncio.sleep(rng.uniform(0, 2 * pause))

    async with HttpCaller(target) as caller:
        await asyncio.gather(*(converse(number) for number in range(conversations)))
    return counts[1] / counts[0]


async def affinity(
    target: HttpTarget, turns: Sequence[int], conversations: int, pause: float, seed: int = 7
) -> dict[str, Any]:
    """Hit rates for each number of turns, and their ratio. `affinity_hit_ratio` is that of four turns."""
    figures: dict[str, Any] = {"affinity_conversations": conversations}
    rates = {}
    for count in turns:
        shared: dict[str, Any] = {"turns": count, "conversations": conversations, "pause": pause, "seed": seed}
        kept = await hit_rate(target, sessions=True, **shared)
        loose = await hit_rate(target, sessions=False, **shared)
        rates[f"{count}_turns"] = {
            "with_affinity": round(kept, 3),
            "least_load": round(loose, 3),
            "ratio": round(kept / loose, 2) if loose else None,
        }
        say(f"prefix cache, {count} turns: {kept:.0%} with affinity, {loose:.0%} by least load")
    figures["affinity_hit_rates"] = rates
    figures["affinity_hit_ratio"] = rates["4_turns"]["ratio"] if "4_turns" in rates else None
    return figures
