"""A scriptable OpenAI-compatible engine with vLLM's metrics, in-process or as `python -m tests.fakes.engine`.

Misbehaviour is a rule `{"match": text, "mode": …, "times": n, …}`, set by `script()` or `POST /_script` (a list; it
replaces the old rules). The first rule with uses left (no `times`: always) whose `match` occurs in the prompt applies:

    slow    {"seconds": s}                answer after s seconds
    hang                                  never answer
    status  {"status": 429, "message": …} an OpenAI error of that status
    die                                   close the socket in the middle of the answer
    junk    {"body": text}                200 with that body
    exit                                  end the engine's process (command line only; `--script` outlives it)

`GET /_seen` tells what came: `{"count": {prompt: n}, "finished": {prompt: n}, "aborted": n, "peak": n, "bodies": […]}`.
"""

import argparse
import asyncio
import json
import os
from collections import Counter
from typing import Any, Self

from aiohttp import web

METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="{model}"}} {running}.0
vllm:num_requests_waiting{{engine="0",model_name="{model}"}} {waiting}.0
vllm:num_requests_waiting_by_reason{{engine="0",model_name="{model}",reason="capacity"}} {waiting}.0
vllm:kv_cache_usage_perc{{engine="0",model_name="{model}"}} {kv}
vllm:num_preemptions_total{{engine="0",model_name="{model}"}} 0.0
vllm:prompt_tokens_total{{engine="0",model_name="{model}"}} {prompt_tokens}.0
vllm:generation_tokens_total{{engine="0",model_name="{model}"}} {generation_tokens}.0
"""


class FakeEngine:
    """`latency` seconds per request, at most `slots` at once; the others wait. Use as an async context manager."""

    def __init__(self, *, latency: float = 0.0, slots: int = 256, model: str = "smollm2-135m-instruct", port: int = 0):
        self.latency, self.slots, self.model, self.port = latency, slots, model, port
        self.rules: list[dict[str, Any]] = []
        self.count: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.aborted = self.running = self.waiting = self.peak = self.prompt_tokens = self.generation_tokens = 0
        self.extra_running = self.extra_waiting = 0  # synchronous load that goes past us
        self.kv = 0.0
        self.serves = [model]
        self.healthy = True
        self.metrics_text: str | None = None
        self._free = asyncio.Semaphore(slots)

    def script(self, *rules: dict[str, Any]) -> None:
        """Replace the rules."""
        self.rules = [dict(rule) for rule in rules]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/_script", self._script)
        app.router.add_get("/_seen", self._seen)
        return app

    async def __aenter__(self) -> Self:
        # handler_cancellation: a closed connection aborts the request, as in vLLM
        self._runner = web.AppRunner(self.app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.metrics_text is not None:
            return web.Response(text=self.metrics_text)
        gauges = {
            "running": self.running + self.extra_running,
            "waiting": self.waiting + self.extra_waiting,
            "kv": self.kv,
            "prompt_tokens": self.prompt_tokens,
            "generation_tokens": self.generation_tokens,
        }
        return web.Response(text=METRICS.format(model=self.model, **gauges))

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"} for name in self.serves]})

    async def _script(self, request: web.Request) -> web.Response:
        self.script(*await request.json())
        return web.json_response({})

    async def _seen(self, request: web.Request) -> web.Response:
        seen = {"count": self.count, "finished": self.finished, "aborted": self.aborted, "peak": self.peak}
        return web.json_response({**seen, "bodies": self.bodies[-100:]})

    def _rule(self, text: str) -> dict[str, Any]:
        for rule in self.rules:
            if rule.get("match", "") in text and rule.get("times", 1) > 0:
                if "times" in rule:
                    rule["times"] -= 1
                return rule
        return {"mode": "answer"}

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = _prompt(body)
        self.count[prompt] += 1
        self.bodies.append(body)
        try:
            self.waiting += 1
            try:
                await self._free.acquire()
            finally:
                self.waiting -= 1
            self.running += 1
            self.peak = max(self.peak, self.running)
            try:
                return await self._serve(request, body, prompt)
            finally:
                self.running -= 1
                self._free.release()
        except asyncio.CancelledError:
            self.aborted += 1
            raise

    async def _serve(self, request: web.Request, body: dict[str, Any], prompt: str) -> web.StreamResponse:
        rule = self._rule(prompt)
        match rule["mode"]:
            case "hang":
                await asyncio.Event().wait()
            case "status":
                error = {"message": rule.get("message", "scripted"), "type": "scripted", "code": rule["status"]}
                return web.json_response({"error": error}, status=rule["status"])
            case "junk":
                return web.Response(text=rule["body"], content_type="application/json")
            case "die":
                return await _die(request)
            case "exit":
                os._exit(3)
        await asyncio.sleep(rule.get("seconds", self.latency))
        self.finished[prompt] += 1
        return web.json_response(self._answer(body, prompt))

    def _answer(self, body: dict[str, Any], prompt: str) -> dict[str, Any]:
        prompt_tokens, completion_tokens = max(1, len(prompt) // 4), 4
        self.prompt_tokens += prompt_tokens
        self.generation_tokens += completion_tokens
        text = f"echo: {prompt}"
        chat = "messages" in body
        said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return {
            "id": f"cmpl-{sum(self.count.values())}",
            "object": "chat.completion" if chat else "text_completion",
            "created": 1,
            "model": body.get("model"),
            "choices": [{"index": 0, "finish_reason": "stop", **said}],
            "usage": {
                "prompt_tokens": prompt_tokens,
                "completion_tokens": completion_tokens,
                "total_tokens": prompt_tokens + completion_tokens,
                "prompt_tokens_details": {"cached_tokens": prompt_tokens // 2},
            },
        }


async def _die(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.abort()
    return response


def _prompt(body: dict[str, Any]) -> str:
    if "messages" in body:
        return str(body["messages"][-1].get("content"))
    return str(body.get("prompt"))


async def serve(port: int, latency: float, slots: int, model: str, script: str) -> None:
    """Run until killed; prints the URL once it listens."""
    async with FakeEngine(latency=latency, slots=slots, model=model, port=port) as engine:
        engine.script(*json.loads(script))
        print(engine.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A scriptable engine without a model.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds per request")
    parser.add_argument("--slots", type=int, default=256, help="requests at once")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--script", default="[]", help="rules to begin with, as JSON")
    asyncio.run(serve(**vars(parser.parse_args())))
