"""Fakes of engines other than vLLM, written from their sources and never compared with the real servers.

FakeSGLang    0.5.23: http_server.py, openai/protocol.py, observability/metrics_collector.py
FakeTrtllm    commits 050f80d and 0076e93: serve/openai_server.py, serve/openai_protocol.py, metrics/collector.py
FakeOpenAI    OpenAI's API reference: a server that refuses every other field, and has no other route
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from aiohttp import web

from testing.fakes import tokens
from testing.fakes.completion import prompt_of
from testing.fakes.engine import FakeEngine

_SHARED = (
    "model frequency_penalty logit_bias logprobs n presence_penalty seed stop stream stream_options temperature top_p user"
    " max_tokens"
)
_CHAT = f"{_SHARED} messages max_completion_tokens response_format tools tool_choice top_logprobs"
_COMPLETION = f"{_SHARED} prompt best_of echo suffix"
_TRTLLM = "top_k min_p repetition_penalty ignore_eos min_tokens stop_token_ids skip_special_tokens"


class _Server(FakeEngine):
    """An engine with the routes in `routes`, which refuses fields that are not in `allowed`, if that has its route."""

    owner = "acme"
    routes: tuple[str, ...] = ()
    allowed: ClassVar[dict[str, frozenset[str]]] = {}

    def app(self) -> web.Application:
        whole, app = super().app(), web.Application(client_max_size=64 << 20, middlewares=[self._guard])
        for route in whole.router.routes():
            path = route.resource.canonical if route.resource is not None else ""
            if route.method != "HEAD" and (path in self.routes or path.startswith(("/v1/", "/_"))):
                app.router.add_route(route.method, path, route.handler)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        cards = [{"id": name, "object": "model", "created": 1, "owned_by": self.owner} for name in self.serves]
        return web.json_response({"object": "list", "data": cards})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        refusal = self.refusal(request.path, body)
        if refusal is not None:
            self.refused.append(body)
            return refusal
        return await super()._complete(request)

    def refusal(self, path: str, body: dict[str, Any]) -> web.Response | None:
        """The answer to a request that this server refuses."""
        unknown = sorted(body.keys() - self.allowed.get(path, body.keys()))
        if not unknown:
            return None
        error = {"message": f"Unrecognized request argument supplied: {unknown[0]}", "type": "invalid_request_error"}
        return web.json_response({"error": error}, status=400)


class FakeOpenAI(_Server):
    """A server with OpenAI's routes and fields only: no health check, no metrics, no tokenizer."""

    allowed: ClassVar[dict[str, frozenset[str]]] = {
        "/v1/chat/completions": frozenset(_CHAT.split()),
        "/v1/completions": frozenset(_COMPLETION.split()),
    }


class FakeTrtllm(_Server):
    """trtllm-serve. `perf_metrics`: it was started with `return_perf_metrics`. It forbids unknown fields."""

    owner = "tensorrt_llm"
    routes = ("/health", "/version", "/server_info", "/metrics")
    allowed: ClassVar[dict[str, frozenset[str]]] = {
        "/v1/chat/completions": frozenset([*_CHAT.split(), *_TRTLLM.split(), "cache_salt"]),
        "/v1/completions": frozenset([*_COMPLETION.split(), *_TRTLLM.split()]),
    }

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.perf_metrics = True
        self.version = "1.2.1"

    def app(self) -> web.Application:
        app = super().app()
        app.router.add_get("/prometheus/metrics", self._prometheus)
        return app

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.json_response([{"numActiveRequests": self.running}])

    async def _server_info(self, request: web.Request) -> web.Response:
        return web.json_response({"disaggregated_params": {}})

    async def _prometheus(self, request: web.Request) -> web.Response:
        return web.Response(text=self.page()) if self.perf_metrics else web.Response(status=404)

    def page(self) -> str:
        ended = sum(self.finished.values())
        return _page(
            'model_name="undefined",engine_type="undefined"',
            {
                "trtllm_num_requests_running": self.running + self.extra_running,
                "trtllm_num_requests_waiting": self.waiting + self.extra_waiting,
                "trtllm_kv_cache_utilization": self.kv,
                "trtllm_max_num_active_requests": self.slots,
                "trtllm_prompt_tokens_total": 8 * ended,
                "trtllm_generation_tokens_total": self.answer_tokens * ended,
            },
        )


class FakeSGLang(_Server):
    """SGLang. `info`: its arguments, as `/server_info` shows them. `extra_running` and `extra_waiting` have the default priority.

    `/health` computes a token, which takes a second. A stream of a chat brings no token ids. It ignores unknown fields.
    """

    owner = "sglang"
    routes = ("/health", "/server_info", "/metrics", "/tokenize", "/detokenize")

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.version = "0.5.23"
        self.inside: Counter[int | None] = Counter()  # requests in the engine, by priority
        self.info: dict[str, Any] = {
            "enable_metrics": True,
            "enable_priority_scheduling": True,
            "schedule_low_priority_values_first": True,
            "default_priority_value": 0,
            "priority_scheduling_preemption_threshold": 10,
            "disable_priority_preemption": False,
            "abort_on_priority_when_disabled": False,
            "decode_log_interval": 1,
        }

    async def _health(self, request: web.Request) -> web.Response:
        await asyncio.sleep(1)
        return await super()._health(request)

    async def _models(self, request: web.Request) -> web.Response:
        card = {"object": "model", "created": 1, "owned_by": "sglang", "max_model_len": self.window}
        return web.json_response({"object": "list", "data": [{"id": name, **card} for name in self.serves]})

    async def _server_info(self, request: web.Request) -> web.Response:
        states = [{"effective_max_running_requests_per_dp": self.slots}]
        return web.json_response({**self.info, "internal_states": states, "version": self.version})

    async def _metrics(self, request: web.Request) -> web.Response:
        return await super()._metrics(request) if self.info["enable_metrics"] else web.Response(status=404)

    def refusal(self, path: str, body: dict[str, Any]) -> web.Response | None:
        message, status = "", 400
        if path.endswith("/chat/completions") and body.get("stream") and body.get("return_token_ids"):
            message = "return_token_ids is not supported with streaming on /v1/chat/completions."
        if not self.info["enable_priority_scheduling"] and self.info["abort_on_priority_when_disabled"]:
            message, status = (
                ("Using priority is disabled for this server.", 503) if "priority" in body else (message, status)
            )
        return (
            web.json_response({"object": "error", "message": message, "code": status}, status=status)
            if message
            else None
        )

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        priority = (await request.json()).get("priority", self.info["default_priority_value"])
        self.inside[priority] += 1
        try:
            return await super()._complete(request)
        finally:
            self.inside[priority] -= 1

    async def _tokenize(self, request: web.Request) -> web.Response:
        ids = tokens.encode(prompt_of(await request.json()))
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": self.window})

    async def _detokenize(self, request: web.Request) -> web.Response:
        return web.json_response({"text": self.text_of((await request.json())["tokens"])})

    def page(self) -> str:
        base = f'model_name="{self.model}",engine_type="unified",tp_rank="0",pp_rank="0",moe_ep_rank="0"'
        priorities = self.info["enable_priority_scheduling"]
        total = f'{base},priority=""' if priorities else base
        running, waiting = self.running + self.extra_running, self.waiting + self.extra_waiting
        lines = [_page(total, {"sglang:token_usage": self.kv, "sglang:max_total_num_tokens": 65536})]
        lines.append(_page(total, {"sglang:num_running_reqs": running, "sglang:num_queue_reqs": waiting}))
        for priority in {*self.inside, self.info["default_priority_value"]} if priorities else ():
            others = priority == self.info["default_priority_value"]
            inside = self.inside[priority]
            queued = self.extra_waiting if others else min(inside, self.waiting)
            runs = inside + self.extra_running if others else inside - queued
            counts = {"sglang:num_running_reqs": runs, "sglang:num_queue_reqs": queued}
            lines.append(_page(f'{base},priority="{priority}"', counts, types=False))
        for mode, count in (("decode", self.generation_tokens), ("prefill_compute", self.prompt_tokens)):
            lines.append(
                _page(f'{total},mode="{mode}"', {"sglang:realtime_tokens_total": count}, types=mode == "decode")
            )
        return "".join(lines)


def _page(labels: str, values: Mapping[str, float], *, types: bool = True) -> str:
    """Prometheus text of these values."""
    return "".join(_lines(labels, values, types=types))


def _lines(labels: str, values: Mapping[str, float], *, types: bool) -> Iterable[str]:
    for name, value in values.items():
        if types:
            yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n"
        yield f"{name}{{{labels}}} {float(value)}\n"
