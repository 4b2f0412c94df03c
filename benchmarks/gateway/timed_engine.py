"""The fake engine with fixed delays: `python -m benchmarks.gateway.timed_engine`.

Each event has `sent_at`, in seconds of the clock that all processes share. Cached tokens come from a simulated prefix cache.
"""

import argparse
import asyncio
from time import monotonic
from typing import Any

import orjson
import uvloop
from aiohttp import web

from benchmarks.gateway.prefix_cache import SimulatedPrefixCache
from testing.fakes import tokens
from testing.fakes.completion import Run
from testing.fakes.engine import FakeEngine
from testing.fakes.tokens import Answer


class TimedEngine(FakeEngine):
    """Sends the first token after `latency`, and a further one each `token_seconds`."""

    def __init__(self, *, answer_tokens: int, token_seconds: float, cache_blocks: int, **rest: Any) -> None:
        super().__init__(**rest)
        self.answer_tokens, self.token_seconds = answer_tokens, token_seconds
        self._cache = SimulatedPrefixCache(cache_blocks)

    async def _serve(self, request: web.Request, body: dict[str, Any], prompt: str) -> web.StreamResponse:
        messages = body.get("messages") or [{"role": "user", "content": body.get("prompt")}]
        whole = tokens.encode(rendered(messages))
        run = Run(body, Answer(prompt, self.answer_tokens), prompt=whole)
        usage = self._usage(body, run, messages, whole)
        self.bodies.clear()
        if body.get("stream"):
            return await self._timed(request, run, usage)
        await asyncio.sleep(self.latency + self.token_seconds * (run.stop - 1))
        self.generation_tokens += run.stop
        return web.json_response({**run.whole(), "usage": usage})

    async def _timed(self, request: web.Request, run: Run, usage: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        due = asyncio.get_running_loop().time() + self.latency
        await _until(due)
        await _send(response, run.opening())
        for number in range(run.stop):
            await _until(due + number * self.token_seconds)
            await _send(response, run.piece(number, number + 1))
            self.generation_tokens += 1
        if run.options.get("include_usage"):
            await _send(response, run.event([], usage=usage))
        await response.write(b"data: [DONE]\n\n")
        return response

    def _usage(
        self, body: dict[str, Any], run: Run, messages: list[dict[str, Any]], prompt: list[int]
    ) -> dict[str, Any]:
        """Token counts and cached tokens. Stores the prompt and the answer in the cache."""
        salt = str(body.get("cache_salt", ""))
        reply = {"role": "assistant", "content": "".join(run.answer.text(n) for n in range(run.stop))}
        cached = self._cache.hit(salt, prompt)
        self._cache.keep(salt, tokens.encode(rendered([*messages, reply])))
        self.prompt_tokens += len(prompt)
        counts = {"prompt_tokens": len(prompt), "completion_tokens": run.stop, "total_tokens": len(prompt) + run.stop}
        return {**counts, "prompt_tokens_details": {"cached_tokens": cached}}


def rendered(messages: list[dict[str, Any]]) -> str:
    """The conversation as one text. The text of a continued conversation begins with that of the shorter one."""
    return "".join(f"<{message['role']}>{message.get('content')}" for message in messages)


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + orjson.dumps({**event, "sent_at": monotonic()}) + b"\n\n")


async def serve(**options: Any) -> None:
    """Run until killed; prints `ready` once it listens."""
    async with TimedEngine(**options):
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds to the first token")
    parser.add_argument("--token-seconds", type=float, default=0.0, help="seconds between two tokens")
    parser.add_argument("--answer-tokens", type=int, default=4)
    parser.add_argument("--cache-blocks", type=int, default=100_000)
    parser.add_argument("--slots", type=int, default=256)
    uvloop.run(serve(**vars(parser.parse_args())))
