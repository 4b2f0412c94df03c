"""What the fake engine says about itself: health, metrics, models, version and routes, as vLLM does."""

import asyncio

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


class ServerInfo:
    """The state behind these routes. Tests set its fields."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.running = self.waiting = self.prompt_tokens = self.generation_tokens = 0
        self.extra_running = self.extra_waiting = 0  # synchronous load that goes past us
        self.kv = 0.0
        self.serves = [model]
        self.window: int | None = 8192  # of every name in `serves`, as `/v1/models` and `/tokenize` have it
        self.version = "0.32.0"
        self.policy: str | None = None  # what `/server_info` says, which is there in vLLM's development mode only
        self.key = ""  # what `/v1/models` wants to be shown
        self.pooling = False  # an engine that only embeds has no route for chat
        self.healthy = True
        self.metrics_text: str | None = None
        self.metrics_fault = ""  # "hang" or "error"

    def add_info_routes(self, app: web.Application) -> None:
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_get("/openapi.json", self._openapi)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.healthy else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        if self.metrics_fault == "hang":
            await asyncio.Event().wait()
        if self.metrics_fault == "error":
            return web.Response(status=500)
        return web.Response(text=self.page() if self.metrics_text is None else self.metrics_text)

    def page(self) -> str:
        """The present page of `/metrics`, without scripted faults."""
        gauges = {
            "running": self.running + self.extra_running,
            "waiting": self.waiting + self.extra_waiting,
            "kv": self.kv,
            "prompt_tokens": self.prompt_tokens,
            "generation_tokens": self.generation_tokens,
        }
        return METRICS.format(model=self.model, **gauges)

    async def _models(self, request: web.Request) -> web.Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        if not self.serves:
            return web.Response(status=404)
        card = {"object": "model", "owned_by": "vllm", "parent": None, "max_model_len": self.window}
        return web.json_response({"object": "list", "data": [{"id": name, **card} for name in self.serves]})

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def _server_info(self, request: web.Request) -> web.Response:
        if self.policy is None:
            return web.Response(status=404)
        return web.json_response({"vllm_config": {"scheduler_config": {"policy": self.policy}}})

    async def _openapi(self, request: web.Request) -> web.Response:
        paths = ["/v1/embeddings"] if self.pooling else ["/v1/chat/completions", "/v1/embeddings"]
        return web.json_response({"paths": {path: {} for path in paths}})
