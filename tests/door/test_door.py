"""Claims about the door without keys: priorities, what passes untouched, what is counted, and its own errors."""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.door.conftest import CHAT, TOKEN, USAGE, Inner, client_of
from workers.engine.door import visit
from workers.engine.door.announcer import DoorAnnouncer
from workers.engine.door.body import BodyCheck
from workers.engine.door.middleware import METRICS, PAGE, Door
from workers.engine.door.settings import OUR_HEADER, DoorSettings
from workers.engine.http_answer import Message

OURS = {OUR_HEADER.decode(): TOKEN}
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "hi", "priority": 4}], "max_tokens": 5}


async def test_a_caller_gets_priority_zero_whatever_it_says(door: Door, inner: Inner) -> None:
    async with client_of(door) as client:
        headers = [("X-Vllm-Priority", "-9"), ("x-vllm-priority", "-8"), ("X-VLLM-PRIORITY", "-7")]
        answer = await client.post(CHAT, json={**QUESTION, "priority": -9}, headers=headers)
    assert answer.status_code == 200
    assert inner.body == QUESTION
    assert inner.headers[b"x-vllm-priority"] == b"0"
    assert sum(name == b"x-vllm-priority" for name in inner.headers) == 1
    assert door.usage.cleaned == 1


async def test_without_keys_other_fields_are_the_engines_business(door: Door, inner: Inner) -> None:
    said = {**QUESTION, "cache_salt": "mine", "request_id": "r", "vllm_xargs": {"priority": -9}}
    async with client_of(door) as client:
        await client.post(CHAT, content=json.dumps(said), headers={"content-type": "application/json"})
    assert inner.body == said


async def test_a_request_of_ours_passes_as_it_is_and_the_token_goes_no_further(door: Door, inner: Inner) -> None:
    said = {**QUESTION, "priority": 10, "cache_salt": "s"}
    async with client_of(door, **OURS) as client:
        await client.post(CHAT, json=said, headers={"X-Vllm-Priority": "10"})
    assert inner.body == said
    assert inner.headers[b"x-vllm-priority"] == b"10"
    assert OUR_HEADER not in inner.headers
    assert (door.usage.ours, door.usage.announced, door.usage.accounts) == (1, 0, {})


async def test_a_request_of_ours_may_show_one_token_for_each_secret_key_of_a_change(door: Door, inner: Inner) -> None:
    async with client_of(door, **{OUR_HEADER.decode(): f"engine-0.next,{TOKEN}"}) as client:
        await client.post(CHAT, json={**QUESTION, "priority": 10})
    assert inner.body["priority"] == 10
    assert OUR_HEADER not in inner.headers
    many = ",".join(["x"] * 100 + [TOKEN])
    async with client_of(door, **{OUR_HEADER.decode(): many}) as client:
        assert (await client.get(PAGE)).status_code == 401


@pytest.mark.parametrize("shown", ["", "engine-0.aaab", "engine-1.aaaa"])
async def test_another_token_makes_a_request_not_ours(door: Door, inner: Inner, shown: str) -> None:
    async with client_of(door, **{OUR_HEADER.decode(): shown}) as client:
        await client.post(CHAT, json={**QUESTION, "priority": 10})
        assert "priority" not in inner.body
        assert OUR_HEADER not in inner.headers
        assert (await client.get(PAGE)).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/metrics", "/version", "/sleep", "/"])
async def test_what_is_not_about_inference_passes_untouched(door: Door, inner: Inner, path: str) -> None:
    async with client_of(door) as client:
        await client.post(path, content=b'{"priority":1}', headers={"x-vllm-priority": "3"})
    assert inner.seen[-1][1] == b'{"priority":1}'
    assert inner.headers[b"x-vllm-priority"] == b"3"


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_connections_pass(door: Door, inner: Inner, kind: str) -> None:
    async def receive() -> Message:
        return {"type": f"{kind}.shutdown"}

    scope = {"type": kind, "path": "/v1/realtime", "headers": [(b"x-vllm-priority", b"-1")]}
    await door(scope, receive, receive)  # type: ignore[arg-type]
    assert inner.kinds == [kind]
    assert inner.messages == [{"type": f"{kind}.shutdown"}]
    assert kind == "lifespan" or (b"x-vllm-priority", b"-1") not in scope["headers"]


async def test_without_a_token_the_door_does_nothing_and_says_so(
    inner: Inner, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        door = Door(inner, DoorSettings.of({}))
    assert "SLACKWATER_DOOR_TOKEN" in caplog.text
    async with client_of(door) as client:
        await client.post(CHAT, json={**QUESTION, "priority": 3})
    assert inner.body["priority"] == 3


def test_a_variable_with_a_wrong_value_is_named_and_counts_as_not_set() -> None:
    wrong = {"SLACKWATER_DOOR_TOKEN": "a.b", "SLACKWATER_DOOR_UNKNOWN": "maybe", "SLACKWATER_DOOR_BODY_MB": "-1"}
    settings = DoorSettings.of(wrong)
    assert len(settings.problems) == 2
    assert (settings.token, settings.pass_unknown, settings.most_bytes) == ("a.b", False, DoorSettings().most_bytes)


def test_the_address_of_the_api_may_be_the_one_that_openais_clients_take() -> None:
    assert DoorSettings.of({"SLACKWATER_DOOR_API": "http://api:8700/v1/"}).api == "http://api:8700"


def scope_of(path: str = CHAT, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "headers": list(headers)}


def replay(*messages: Message) -> Callable[[], Any]:
    left = list(messages)

    async def receive() -> Message:
        return left.pop(0)

    return receive


async def nothing(message: Message) -> None:
    """Send nowhere."""


async def test_a_body_in_many_parts_is_checked_whole(door: Door, inner: Inner) -> None:
    parts = [bytes([byte]) for byte in json.dumps({**QUESTION, "priority": -1}).encode()]
    messages: list[Message] = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    await door(scope_of(), replay(*messages, {"type": "http.request"}), nothing)
    assert inner.body == QUESTION


async def test_a_caller_that_leaves_before_its_body_is_complete_is_gone_for_the_engine(
    door: Door, inner: Inner
) -> None:
    half: Message = {"type": "http.request", "body": b'{"a"', "more_body": True}
    await door(scope_of(), replay(half, {"type": "http.disconnect"}), nothing)
    assert inner.messages == [{"type": "http.disconnect"}]
    assert door.usage.open == 0


async def test_after_its_body_a_disconnect_reaches_the_engine(door: Door) -> None:
    seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive(), await receive()])

    door._app = app
    whole: Message = {"type": "http.request", "body": b"{}", "more_body": False}
    await door(scope_of(), replay(whole, {"type": "http.disconnect"}), nothing)
    assert [message["type"] for message in seen] == ["http.request", "http.disconnect"]


async def test_a_cancelled_read_loses_no_part_of_the_body(door: Door) -> None:
    arrived: asyncio.Queue[Message] = asyncio.Queue()
    bodies = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        waiting = asyncio.ensure_future(receive())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await arrived.put({"type": "http.request", "body": b'"priority":1}', "more_body": False})
        bodies.append((await receive())["body"])

    door._app = app
    await arrived.put({"type": "http.request", "body": b'{"a":1,', "more_body": True})
    await door(scope_of(), arrived.get, nothing)
    assert json.loads(bodies[0]) == {"a": 1}


async def test_a_body_over_the_limit_is_refused_and_never_held(inner: Inner) -> None:
    door = Door(inner, DoorSettings(token=TOKEN, most_bytes=1000))
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    parts: list[Message] = [{"type": "http.request", "body": b"x" * 600, "more_body": True}] * 3
    await door(scope_of(), replay(*parts), send)
    assert [message.get("status") for message in sent] == [413, None]
    assert inner.messages == [{"type": "http.disconnect"}]
    assert door.usage.refused == {413: 1}


async def test_a_recording_is_passed_on_as_it_arrives(inner: Inner) -> None:
    door = Door(inner, DoorSettings(token=TOKEN, most_bytes=1000))
    form = (b"content-type", b"multipart/form-data; boundary=x")
    parts: list[Message] = [{"type": "http.request", "body": b"x" * 600, "more_body": more} for more in (True, False)]
    await door(scope_of("/v1/audio/transcriptions", form), replay(*parts), nothing)
    assert inner.messages == parts
    await door(scope_of(CHAT, form), replay({"type": "http.request", "body": b'{"priority":1}'}), nothing)
    assert inner.body == {}


async def test_tokens_are_those_that_the_engine_reports(door: Door, inner: Inner) -> None:
    async with client_of(door) as client:
        await client.post(CHAT, json=QUESTION)
        inner.kind = b"text/event-stream; charset=utf-8"
        text = b'data: {"choices":[{"delta":{"content":"\\"usage\\":{\\"prompt_tokens\\":99}"}}]}\n\n'
        inner.chunks = (text, text, b'data: {"choices":[],"usage":' + USAGE + b"}\n\n", b"data: [DONE]\n\n")
        await client.post(CHAT, json=QUESTION)
        usage = door.usage.accounts[""]
        assert (usage.requests, usage.prompt_tokens, usage.completion_tokens, usage.estimated) == (2, 22, 6, 0)
        inner.chunks = (b": ping\n\n", text, text, b"data: [DONE]\n\n")
        await client.post(CHAT, json=QUESTION)
        assert (usage.requests, usage.completion_tokens, usage.estimated) == (3, 9, 1)
        inner.status = 400
        await client.post(CHAT, json=QUESTION)
        assert (usage.requests, usage.completion_tokens) == (4, 9)


async def test_the_page_is_found_under_the_path_at_which_the_server_is_mounted(door: Door, inner: Inner) -> None:
    transport = httpx.ASGITransport(app=door, root_path="/engine")
    async with httpx.AsyncClient(transport=transport, base_url="http://engine", headers=OURS) as client:
        assert (await client.get(f"/engine{PAGE}")).status_code == 200
    assert not inner.seen


async def test_the_counters_are_for_who_has_the_token(door: Door) -> None:
    async with client_of(door) as client:
        await client.post(CHAT, json=QUESTION)
        assert (await client.get(PAGE)).status_code == (await client.get(METRICS)).status_code == 401
        page = (await client.get(PAGE, headers=OURS)).json()
        text = (await client.get(METRICS, headers=OURS)).text
    assert page["accounts"] == {"": {"requests": 1, "prompt_tokens": 11, "completion_tokens": 3, "estimated": 0}}
    assert page["open"] == 0
    assert 'slackwater_door_tokens_total{account="",kind="prompt"} 11' in text.splitlines()


def broken(*_: Any, **__: Any) -> Any:
    raise RuntimeError("injected")


@pytest.mark.parametrize(
    ("step", "owner", "name"),
    [
        ("recognise", "workers.engine.door.middleware.paths", "kind_of"),
        ("recognise", "workers.engine.door.middleware.hmac", "compare_digest"),
        ("begin", "workers.engine.door.visit.paths", "is_upload"),
        ("body", BodyCheck, "clean"),
        ("announce", DoorAnnouncer, "tell"),
        ("answer", visit.DoorVisit, "_note"),
        ("count", visit.DoorVisit, "_count"),
    ],
)
async def test_an_error_of_the_door_harms_no_request(
    door: Door, inner: Inner, monkeypatch: pytest.MonkeyPatch, step: str, owner: Any, name: str
) -> None:
    """Each step raises in turn. The engine answers as without the door."""
    if isinstance(owner, str):
        monkeypatch.setattr(f"{owner}.{name}", broken)
    else:
        monkeypatch.setattr(owner, name, broken)
    async with client_of(door, **({OUR_HEADER.decode(): "x"} if name == "compare_digest" else {})) as client:
        answer = await client.post(CHAT, json=QUESTION)
    assert answer.status_code == 200
    assert answer.content == inner.chunks[0]
    assert inner.body == QUESTION
    assert door.usage.faults[step] >= 1


async def test_a_door_that_cannot_be_built_lets_everything_pass(inner: Inner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.engine.door.middleware.BodyCheck", broken)
    door = Door(inner, DoorSettings(token=TOKEN))
    async with client_of(door) as client:
        assert (await client.post(CHAT, json=QUESTION)).status_code == 200
    assert door.usage.faults == {"start": 1}


async def test_an_error_of_the_engine_stays_one(door: Door) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise OSError("the engine's own")

    door._app = app
    with pytest.raises(OSError, match="the engine's own"):
        await door(scope_of(), replay({"type": "http.request"}), nothing)
    assert door.usage.open == 0
    assert not door.usage.faults
