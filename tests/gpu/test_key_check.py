"""Of vLLM's whole HTTP server, what answers without the key."""

from typing import Any

import httpx
import pytest
from starlette.routing import Mount, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from tests.needs import module
from workers.engine.key_check import MIDDLEWARE, OTHERS, VARIABLE, KeyCheck

pytestmark = pytest.mark.slow

launchers = module("vllm.entrypoints.launchers.app")
cli_args = module("vllm.entrypoints.launchers.cli_args")
arguments = module("vllm.utils.argparse_utils")

SHOWN = {"authorization": "Bearer secret"}
EVERY_TASK = ("generate", "embed", "classify", "transcription", "realtime", "render")
NO_ROUTES_OF_VLLM = ("/", "/nowhere", "/health/", "/metrics/../invocations", "//health", "/v1")


@pytest.fixture(params=[("generate",), EVERY_TASK], ids=["generate", "every task"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    """vLLM's own application, as we start it, without an engine behind it."""
    monkeypatch.setenv(VARIABLE, "secret")
    parser = cli_args.make_arg_parser(arguments.FlexibleArgumentParser())
    return launchers.build_app(parser.parse_args(["--model", "x", "--middleware", MIDDLEWARE]), request.param)


def paths(server: object) -> set[str]:
    return {route.path for route in server.routes if not isinstance(route, WebSocketRoute)}


async def test_without_its_key_an_engine_answers_only_health_and_metrics(server: object) -> None:
    known = paths(server)
    assert {"/v1/chat/completions", "/invocations", "/generative_scoring", "/detokenize", "/tokenize"} <= known
    assert any(isinstance(route, Mount) for route in server.routes)
    transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        for path in known | set(NO_ROUTES_OF_VLLM):
            for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
                for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret"}):
                    answer = await client.request(method, path, headers=headers)
                    assert (answer.status_code == 401) is (path not in ("/health", "/metrics")), (
                        method,
                        path,
                        answer.status_code,
                    )
        for path in known:
            assert (await client.get(path, headers=SHOWN)).status_code != 401


async def test_an_engine_takes_the_keys_of_a_change_and_vllm_sees_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "secret")
    monkeypatch.setenv(OTHERS, "last,next")

    async def inner(scope: Any, receive: Any, send: Any) -> None:
        shown = dict(scope["headers"])[b"authorization"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": shown})

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=KeyCheck(inner)), base_url="http://engine"
    ) as client:
        for key in ("secret", "last", "next"):
            answer = await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
            assert (answer.status_code, answer.text) == (200, "Bearer secret")
        assert (await client.get("/v1/models", headers={"authorization": "Bearer last,next"})).status_code == 401


def test_a_websocket_without_the_key_is_refused(server: object) -> None:
    for path in [route.path for route in server.routes if isinstance(route, WebSocketRoute)]:
        with pytest.raises(WebSocketDisconnect), TestClient(server).websocket_connect(path):
            pass


def test_without_a_key_to_ask_for_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    module, name = MIDDLEWARE.rsplit(".", 1)
    with pytest.raises(KeyError, match=VARIABLE):
        getattr(__import__(module, fromlist=[name]), name)(None)
