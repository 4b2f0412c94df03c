"""Claims about the door in vLLM's own HTTP server: with which priority its handlers see a request, however it was written."""

import gzip
import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.door.conftest import CHAT, TOKEN
from tests.needs import module
from workers.engine.door.paths import Kind, kind_of
from workers.engine.door.settings import OUR_HEADER

pytestmark = pytest.mark.slow

launchers = module("vllm.entrypoints.launchers.app")
cli_args = module("vllm.entrypoints.launchers.cli_args")
arguments = module("vllm.utils.argparse_utils")
serving = module("vllm.entrypoints.generate.base.serving")
protocol = module("vllm.entrypoints.openai.chat_completion.protocol")

EVERY_TASK = ("generate", "embed", "classify", "transcription", "realtime", "render")
JSON = {"content-type": "application/json"}
SAID: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
# The beginning of a body to which tricks add.
START = json.dumps(SAID)[:-1].encode()


def server_of(*flags: str, tasks: tuple[str, ...] = ("generate",)) -> Any:
    """vLLM's own application, without an engine behind it."""
    parser = cli_args.make_arg_parser(arguments.FlexibleArgumentParser())
    return launchers.build_app(parser.parse_args(["--model", "x", *flags]), tasks)


class Handler:
    """In the place of vLLM's chat: notes the priority that vLLM would give a request."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    async def create_chat_completion(self, request: Any, raw_request: Any) -> Any:
        self.seen.append(serving.GenerateBaseServing._get_priority(request, raw_request))
        self.seen.append(request.priority)
        choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "total_tokens": 5, "completion_tokens": 2}
        return protocol.ChatCompletionResponse(model="m", choices=[choice], usage=usage)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
async def client(handler: Handler, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setenv("SLACKWATER_DOOR_TOKEN", TOKEN)
    app = server_of("--middleware", "workers.engine.door.Door")
    app.state.openai_serving_chat = handler
    app.state.args = SimpleNamespace(sse_keep_alive_interval=0)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        yield client


async def in_parts(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 7):
        yield data[start : start + 7]


Trick = Callable[[], tuple[Any, dict[str, str]]]
TRICKS: dict[str, Trick] = {
    "body": lambda: (START + b',"priority":-5}', {}),
    "header": lambda: (START + b"}", {"X-Vllm-Priority": "-5"}),
    "header in other case": lambda: (START + b"}", {"x-VLLM-pRIORITY": "-5"}),
    "body and header": lambda: (START + b',"priority":-5}', {"X-Vllm-Priority": "-6"}),
    "duplicate keys": lambda: (START + b',"priority":0,"priority":-5}', {}),
    "escaped key": lambda: (START + b',"\\u0070rior\\u0069ty":-5}', {}),
    "other case": lambda: (START + b',"Priority":-5,"PRIORITY":-5}', {}),
    "nested": lambda: (START + b',"vllm_xargs":{"priority":-5},"extra_body":{"priority":-5}}', {}),
    "text": lambda: (START + b',"priority":"-5"}', {}),
    "not quite JSON": lambda: (START + b',"x":NaN,"priority":-5}', {}),
    "byte order mark": lambda: (b"\xef\xbb\xbf" + START + b',"priority":-5}', {}),
    "UTF-16": lambda: ((START + b',"priority":-5}').decode().encode("utf-16"), {}),
    "UTF-32": lambda: ((START + b',"priority":-5}').decode().encode("utf-32-be"), {}),
    "in chunks": lambda: (in_parts(START + b',"priority":-5}'), {}),
    "wrong length": lambda: (START + b',"priority":-5}', {"content-length": "3"}),
    "other kind of JSON": lambda: (START + b',"priority":-5}', {"content-type": "APPLICATION/JSON; charset=utf-16"}),
    "compressed": lambda: (gzip.compress(START + b',"priority":-5}'), {"content-encoding": "gzip"}),
    "chunked by name": lambda: (START + b',"priority":-5}', {"transfer-encoding": "gzip, chunked"}),
    "form": lambda: (START + b',"priority":-5}', {"content-type": "multipart/form-data; boundary=x"}),
}
REFUSED_BY_VLLM = {"compressed", "form", "nested"}


@pytest.mark.parametrize("trick", TRICKS)
async def test_no_trick_gives_a_caller_another_priority(
    client: httpx.AsyncClient, handler: Handler, trick: str
) -> None:
    content, headers = TRICKS[trick]()
    answer = await client.post(CHAT, content=content, headers={**JSON, **headers})
    assert not any(handler.seen)
    assert bool(handler.seen) is (answer.status_code == 200)
    if trick not in REFUSED_BY_VLLM:
        assert handler.seen == [0, 0], answer.text


async def test_a_request_of_ours_has_its_priority(client: httpx.AsyncClient, handler: Handler) -> None:
    ours = {OUR_HEADER.decode(): TOKEN}
    assert (await client.post(CHAT, json={**SAID, "priority": 10}, headers=ours)).status_code == 200
    assert handler.seen == [10, 10]


def test_each_route_that_takes_a_priority_is_known_to_compute() -> None:
    routes = [route for route in server_of(tasks=EVERY_TASK).routes if isinstance(route, APIRoute)]
    assert len(routes) > 20
    taking = []
    for route in routes:
        kinds = [parameter.field_info.annotation for parameter in route.dependant.body_params]
        if any("priority" in json.dumps(_properties(kind)) for kind in kinds):
            taking.append(route.path)
    assert CHAT in taking
    light = {path for path in taking if kind_of("POST", path) is not Kind.WORK}
    assert all(path.endswith("/render") for path in light), light


def _properties(kind: Any) -> list[str]:
    members = getattr(kind, "__args__", ()) or (kind,)
    return [name for member in members for name in getattr(member, "model_fields", {})]
