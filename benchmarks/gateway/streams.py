"""Arm: many streams at once, and whether events are held back before they arrive.

An event is coalesced if it was read together with one that the engine sent at least `APART_SECONDS` later. The engine sends
tokens at larger intervals; only the begin and the end of a stream have several events at once.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson

from benchmarks.gateway.http_client import HttpCaller, HttpTarget, TimedAnswer
from benchmarks.gateway.installation import question
from benchmarks.harness import say
from benchmarks.statistics import percentiles

APART_SECONDS = 0.02


def coalesced(answer: TimedAnswer) -> int:
    """The number of events of this stream that were held back until a later one."""
    count = 0
    for read in answer.events():
        sent = [float(str(body["sent_at"])) for _, body in read if "sent_at" in body]
        count += sum(1 for moment in sent if sent[-1] - moment >= APART_SECONDS)
    return count


def delays_ms(answer: TimedAnswer) -> list[float]:
    """Milliseconds from the sending of each event to its receipt."""
    return [
        (at - float(str(body["sent_at"]))) * 1e3 for read in answer.events() for at, body in read if "sent_at" in body
    ]


def complete(answer: TimedAnswer, tokens: int) -> bool:
    """Whether the stream has all tokens and its end."""
    pieces = [body for read in answer.events() for _, body in read if "error" not in body]
    received = sum(1 for body in pieces for choice in _choices(body) if "role" not in choice["delta"])
    return received == tokens and answer.body.endswith(b"data: [DONE]\n\n")


def _choices(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body.get("choices") or []


async def streams(routes: Mapping[str, HttpTarget], count: int, tokens: int) -> dict[str, Any]:
    """Run `count` streams at the same time, on one route after the other."""
    figures: dict[str, Any] = {"streams_offered": count, "stream_tokens": tokens}
    for name, target in routes.items():
        async with HttpCaller(target) as caller:
            await asyncio.gather(*(_one(caller, -n, tokens=4) for n in range(1, 9)))  # warm
            answers = await asyncio.gather(*(_one(caller, n, tokens) for n in range(count)), return_exceptions=True)
        for lost in [answer for answer in answers if isinstance(answer, BaseException)][:3]:
            say(f"a stream was lost ({name}): {lost!r}")
        good = [answer for answer in answers if isinstance(answer, TimedAnswer)]
        p50, p99 = percentiles([delay for answer in good for delay in delays_ms(answer)])
        prefix = "" if name == "gateway" else f"{name}_"
        figures |= {
            f"{prefix}streams_held": sum(complete(answer, tokens) for answer in good),
            f"{prefix}chunks_coalesced": sum(coalesced(answer) for answer in good),
            f"{prefix}event_delay_p50_ms": round(p50, 2),
            f"{prefix}event_delay_p99_ms": round(p99, 2),
        }
        held = figures[f"{prefix}streams_held"]
        say(f"streams, {name}: {held} of {count} held, events p50 {p50:.1f}, p99 {p99:.1f} ms delay")
    return figures


async def _one(caller: HttpCaller, number: int, tokens: int) -> TimedAnswer:
    await asyncio.sleep(max(0, number) * 0.005)  # so that streams do not begin in the same millisecond
    return await caller.post(orjson.dumps(question(f"stream {number}", max_tokens=tokens)))
