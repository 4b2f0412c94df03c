"""A scriptable OpenAI-compatible engine with vLLM's metrics, in-process or as `python -m testing.fakes.engine`.

A fault is a rule `{"match": text, "mode": …, "times": n, …}`, set by `script()` or `POST /_script` (a list, which
replaces the old rules). The first rule applies whose `match` occurs in the prompt and whose `times` is not used up:

    slow    {"seconds": s}                answer after s seconds
    hang                                  never answer
    status  {"status": 429, "message": …} an OpenAI error of that status; with {"body": text, "type": …} a page of something
                                          between, in HTML unless the type says otherwise; "encoding" claims a compression
    edit    {"without": [name, …], "replace": [[text, text], …]}  the answer without fields, or with other text in its JSON
    die                                   close the socket in the middle of the answer
    junk    {"body": text}                200 with that body
    error   {"message": …}                an error event in a stream, as vLLM sends it; 500 otherwise
    exit                                  end the engine's process (command line only; a restart sets `--script` again)

`lacking` are routes that answer 404. While `locked`, every request that computes is answered with it: [status, body].

In the Responses API, `die` ends a stream at its first token, and `{"pause": s}` pauses between two events.
In a stream, `{"after": n}` sends n tokens before the fault. Any rule may set the length of the answer with
`{"tokens": n}`, or let it call tools instead of writing text: `{"calls": [[name, arguments], …]}`. A rule that does only this
has the mode `answer`.

Streams are those of vLLM, chat and text, with `return_token_ids`, `stream_options` and `max_tokens`. A text completion of a
list of tokens continues an answer (`testing/fakes/tokens.py`). Tokens that this engine does not produce are refused.

`GET /_seen` returns what was received: `{"count": {prompt: n}, "finished": {prompt: n}, "resumed": {prompt: n}, "aborted": n,
"peak": n, "bodies": […]}`. A continuation counts for its original prompt.
"""

import argparse
import asyncio
import json
import os
import zlib
from collections import Counter
from typing import Any, Self

from aiohttp import web
from aiohttp.typedefs import Handler

from testing.fakes import embeddings_and_responses, faults, tokens
from testing.fakes.completion import Run, prompt_of
from testing.fakes.server_info import ServerInfo
from testing.fakes.tokens import Answer


class FakeEngine(ServerInfo):
    """Takes `latency` seconds to the first token and `token_seconds` to each further one, and sends `chunk_tokens` in an event
    of a stream. At most `slots` requests run at once, and the others wait. Use it as an async context manager.
    """

    def __init__(
        self,
        *,
        latency: float = 0.0,
        slots: int = 256,
        model: str = "smollm2-135m-instruct",
        port: int = 0,
        host: str = "127.0.0.1",
    ):
        super().__init__(model)
        self.latency, self.slots, self.port, self.host = latency, slots, port, host
        self.token_seconds, self.answer_tokens, self.chunk_tokens = 0.0, 4, 1
        self.resumed: Counter[str] = Counter()
        self._answers: dict[int, Answer] = {}  # by the prompt's crc32, for /detokenize
        self.rules: list[dict[str, Any]] = []
        self.count: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.bodies: list[dict[str, Any]] = []
        self.raw: list[bytes] = []  # the same as they were sent
        self.refused: list[dict[str, Any]] = []  # bodies with a field that this kind of engine refuses
        self.keys: list[str | None] = []
        self.traces: list[str | None] = []
        self.aborted = self.peak = self.longest_queue = 0
        self.tokenized: list[dict[str, Any]] = []  # what /tokenize was asked
        self.lacking: set[str] = set()
        self.turned_away = 0  # while it was locked
        self.locked: tuple[int, str] | None = None
        self.stream_usage = True  # whether a stream ends with the usage, if that is asked for
        self._free = asyncio.Semaphore(slots)

    def script(self, *rules: dict[str, Any]) -> None:
        """Replace the rules."""
        self.rules = [{"mode": "answer", **rule} for rule in rules]

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 << 20, middlewares=[self._guard])
        self.add_info_routes(app)
        app.router.add_post("/v1/chat/completions", self._complete)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/_script", self._script)
        app.router.add_get("/_seen", self._seen)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in self.lacking:
            return web.json_response({"detail": "Not Found"}, status=404)
        if self.locked is not None and request.method == "POST" and request.path.startswith("/v1/"):
            status, text = self.locked
            self.turned_away += 1
            return web.Response(text=text, status=status, content_type="text/html")
        return await handler(request)

    async def __aenter__(self) -> Self:
        # handler_cancellation: a closed connection aborts the request, as in vLLM
        self._runner = web.AppRunner(self.app(), handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._runner.cleanup()

    async def _script(self, request: web.Request) -> web.Response:
        self.script(*await request.json())
        return web.json_response({})

    async def _seen(self, request: web.Request) -> web.Response:
        seen = {"count": self.count, "finished": self.finished, "resumed": self.resumed, "aborted": self.aborted}
        return web.json_response({**seen, "peak": self.peak, "bodies": self.bodies[-100:]})

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"prompt": self.text_of((await request.json())["tokens"])})

    def text_of(self, ids: list[int]) -> str:
        """The text of these tokens."""
        prompt, generated = tokens.split(ids)
        pieces = (self._answers[tokens.owner(token)].text(tokens.index(token)) for token in generated)
        return prompt + "".join(pieces)

    async def _tokenize(self, request: web.Request) -> web.Response:
        """Answer as vLLM does. Every word is a token, and so is the end of each message."""
        asked = await request.json()
        self.tokenized.append(asked)
        texts = [asked["prompt"]] if "prompt" in asked else [f"{m['content']} ." for m in asked["messages"]]
        count = len(" ".join(texts).split())
        return web.json_response({"count": count, "max_model_len": self.window, "tokens": []})

    async def _embed(self, request: web.Request) -> web.Response:
        body = await self._note(request)
        rule = self._rule(str(body["input"]))
        if rule["mode"] in ("status", "junk"):
            return faults.odd(rule)
        return _json(embeddings_and_responses.embeddings(body), rule)

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        body = await self._note(request)
        rule = self._rule(embeddings_and_responses.last_input_text(body))
        if rule["mode"] in ("status", "junk"):
            return faults.odd(rule)
        if rule["mode"] == "hang":
            await asyncio.Event().wait()
        await asyncio.sleep(rule.get("seconds", self.latency))
        if not body.get("stream"):
            return _json(embeddings_and_responses.response(body, rule.get("calls", ())), rule)
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        for event in embeddings_and_responses.events(body, rule.get("calls", ())):
            await asyncio.sleep(rule.get("pause", 0))
            if rule["mode"] == "die" and event["type"].endswith(".delta"):
                assert request.transport is not None
                request.transport.abort()
                return response
            data = faults.edited(event, rule)
            await response.write(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), data))
        return response

    async def _note(self, request: web.Request) -> dict[str, Any]:
        body: dict[str, Any] = await request.json()
        await self._remember(request, body)
        self.count[str(body["input"])] += 1
        return body

    async def _remember(self, request: web.Request, body: dict[str, Any]) -> None:
        self.bodies.append(body)
        self.raw.append(await request.read())
        self.keys.append(request.headers.get("authorization"))
        self.traces.append(request.headers.get("traceparent"))

    def _rule(self, text: str) -> dict[str, Any]:
        for rule in self.rules:
            if rule.get("match", "") in text and rule.get("times", 1) > 0:
                if "times" in rule:
                    rule["times"] -= 1
                return rule
        return {"mode": "answer"}

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = prompt_of(body)
        self.count[prompt] += 1
        await self._remember(request, body)
        try:
            self.waiting += 1
            self.longest_queue = max(self.longest_queue, self.running + self.waiting - self.slots)
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
        answer = Answer(prompt, rule.get("tokens", self.answer_tokens))
        run = Run(body, answer, f"cmpl-{sum(self.count.values())}")
        if run.wrong:
            return web.json_response({"error": {"message": run.wrong, "type": "BadRequestError"}}, status=400)
        self.resumed[prompt] += 1 if run.done else 0
        self._answers[zlib.crc32(prompt.encode())] = run.answer
        if rule["mode"] in ("status", "junk"):
            return faults.odd(rule)
        if body.get("stream"):
            return await self._stream(request, run, rule)
        match rule["mode"]:
            case "hang":
                await asyncio.Event().wait()
            case "die":
                return await faults.die(request)
            case "error":
                return web.json_response({"error": faults.error(rule)}, status=500)
            case "exit":
                os._exit(3)
        await asyncio.sleep(rule.get("seconds", self.latency) + self.token_seconds * (run.stop - 1))
        self.finished[prompt] += 1
        self.prompt_tokens += run.prompt_tokens
        self.generation_tokens += run.answer.length
        return _json(run.whole(rule.get("calls", ())), rule)

    async def _stream(self, request: web.Request, run: Run, rule: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)

        async def send(event: dict[str, Any]) -> None:
            await response.write(b"data: " + faults.edited(event, rule) + b"\n\n")

        fatal = rule["mode"] in ("hang", "die", "error", "exit")
        until = min(run.stop, run.done + rule.get("after", 0)) if fatal else run.stop
        await asyncio.sleep(rule.get("seconds", self.latency))
        self.prompt_tokens += run.prompt_tokens
        if run.chat and until > run.done:
            await send(run.opening())
        for event in run.calls(rule.get("calls", ())):
            await send(event)
        for begin in range(run.done, run.done if "calls" in rule else until, self.chunk_tokens):
            end = min(begin + self.chunk_tokens, until)
            await asyncio.sleep(0 if begin == run.done else self.token_seconds * (end - begin))
            self.generation_tokens += end - begin
            await send(run.piece(begin, end))
        match rule["mode"]:
            case "hang":
                await asyncio.Event().wait()
            case "die":
                await asyncio.sleep(0.05)  # a reader forgets what it has not read yet when the connection breaks
                assert request.transport is not None
                request.transport.abort()
                return response
            case "exit":
                os._exit(3)
            case "error":
                await send({"error": faults.error(rule)})
            case _:
                if run.options.get("include_usage") and self.stream_usage:
                    await send(run.event([], usage=run.usage(run.stop)))
                self.finished[run.answer.prompt] += 1
        await response.write(b"data: [DONE]\n\n")
        return response


def _json(answer: dict[str, Any], rule: dict[str, Any]) -> web.Response:
    return web.Response(body=faults.edited(answer, rule), content_type="application/json")


async def serve(
    port: int,
    latency: float,
    token_seconds: float,
    slots: int,
    model: str,
    script: str,
    window: int,
    policy: str | None,
    host: str,
) -> None:
    """Run until killed. Prints the URL once it listens."""
    async with FakeEngine(latency=latency, slots=slots, model=model, port=port, host=host) as engine:
        engine.window, engine.policy = window, policy
        engine.script(*json.loads(script))
        engine.token_seconds = token_seconds
        print(engine.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A scriptable engine without a model.")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds per request")
    parser.add_argument("--token-seconds", type=float, default=0.0, help="seconds per further token")
    parser.add_argument("--slots", type=int, default=256, help="requests at once")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--window", type=int, default=8192, help="context window in tokens")
    parser.add_argument("--policy", help="scheduling policy to report; without it, none is reported")
    parser.add_argument("--script", default="[]", help="rules to begin with, as JSON")
    asyncio.run(serve(**vars(parser.parse_args())))
