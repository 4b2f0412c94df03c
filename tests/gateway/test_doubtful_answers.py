"""A synchronous caller reads who has refused the call, and gets what is complete though malformed."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.errors import BadInput, ExecutionFailed, NoCapacity
from app.gateway.relay import Gateway, SyncCall
from testing.fakes.engine import FakeEngine
from tests.gateway.support import Registry

PAGE = "<html><head><title>403 Forbidden</title></head><body>a firewall</body></html>"
BLOCKED = '{"error": {"message": "blocked", "code": 403}}'
STREAM = pytest.mark.parametrize("stream", [True, False])


async def answered(gateway: Gateway, call: SyncCall, *, stream: bool) -> Any:
    """The whole answer, or the events of a stream."""
    if stream:
        return [event.body async for event in gateway.stream(call)]
    return orjson.loads(await gateway.complete(call))


@STREAM
@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ({"status": 403, "body": PAGE}, ("403", "403 Forbidden")),
        ({"status": 302, "body": "Found", "type": "text/plain"}, ("302", "Found")),
        ({"status": 502, "body": PAGE}, ("502", "403 Forbidden")),
        ({"status": 200, "body": PAGE}, ("200", "403 Forbidden")),
        ({"status": 200, "body": BLOCKED, "type": "application/json"}, ("403", "blocked")),
        ({"status": 403, "message": "blocked"}, ("403", "blocked")),
    ],
)  # fmt: skip
async def test_who_is_refused_by_something_between_reads_the_status_and_its_first_line(
    gateway: Gateway, registry: Registry, call: SyncCall, rule: dict[str, Any], told: tuple[str, ...], stream: bool
) -> None:
    async with FakeEngine() as engine:
        engine.script({"match": "hello", "mode": "status", **rule})
        await registry.ready(engine)
        with pytest.raises(ExecutionFailed) as refused:
            await answered(gateway, call, stream=stream)
        assert all(word in refused.value.message for word in told)
        assert "<" not in refused.value.message
        assert "cannot be reached" not in refused.value.message
        engine.script()
        await answered(gateway, call, stream=stream)  # the engine is in use as before
        assert engine.finished.total() == 1


@STREAM
async def test_an_engine_that_refuses_our_key_is_said_to_do_so(
    gateway: Gateway, registry: Registry, call: SyncCall, stream: bool
) -> None:
    async with FakeEngine() as engine:
        engine.script({"mode": "status", "status": 401, "message": "Unauthorized"})
        await registry.ready(engine)
        with pytest.raises(NoCapacity, match=r"refuses our key .*401") as refused:
            await answered(gateway, call, stream=stream)
        assert refused.value.status == 503


async def test_a_route_that_the_engine_lacks_is_named(gateway: Gateway, registry: Registry, call: SyncCall) -> None:
    async with FakeEngine() as engine:
        engine.lacking = {"/v1/responses"}
        await registry.ready(engine)
        with pytest.raises(BadInput, match="the engine does not serve /v1/responses"):
            await gateway.complete(replace(call, item={"input": "hi"}, endpoint="/v1/responses"))


async def test_a_whole_answer_without_usage_is_given_with_an_estimate(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        engine.script({"mode": "edit", "without": ["usage"]})
        await registry.ready(engine)
        answer = await answered(gateway, call, stream=False)
    assert answer["usage"]["prompt_tokens"] == call.prompt_tokens
    assert answer["slackwater"] == {"repaired": ["no usage: tokens are estimated"]}


@STREAM
async def test_a_lone_surrogate_is_replaced_and_the_rest_is_given(
    gateway: Gateway, registry: Registry, call: SyncCall, stream: bool
) -> None:
    async with FakeEngine() as engine:
        engine.script({"mode": "edit", "replace": [["ech", "half \\ud83d"]]})
        await registry.ready(engine)
        answer = await answered(gateway, call, stream=stream)
    said = orjson.dumps(answer).decode()
    assert "half \N{REPLACEMENT CHARACTER}" in said
    assert "ello" in said


@pytest.mark.parametrize("reason", ["abort", "cancelled", "error", "timeout"])
@STREAM
async def test_an_aborted_answer_is_an_error_and_of_a_stream_its_last_event(
    gateway: Gateway, registry: Registry, call: SyncCall, reason: str, stream: bool
) -> None:
    async with FakeEngine() as engine:
        engine.script({"mode": "edit", "replace": [['"finish_reason": "stop"', f'"finish_reason": "{reason}"']]})
        await registry.ready(engine)
        if not stream:
            with pytest.raises(ExecutionFailed, match="aborted"):
                await answered(gateway, call, stream=False)
            return
        *said, last = await answered(gateway, call, stream=True)
    assert said, "what had come was given"
    assert "aborted" in last["error"]["message"]
    assert not any(choice.get("finish_reason") for event in said for choice in event["choices"])


def streamed(*choices: dict[str, Any]) -> dict[str, Any]:
    events = [b"data: " + orjson.dumps({"id": "c", "choices": [choice]}) + b"\n\n" for choice in choices]
    body = b"".join(events).decode() + "data: [DONE]\n\n"
    return {"mode": "status", "status": 200, "type": "text/event-stream", "body": body}


async def test_a_stream_of_which_nothing_is_understood_is_no_empty_success(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        engine.script(streamed({"content": "hi", "finish_reason": "stop"}))
        await registry.ready(engine)
        *_, last = await answered(gateway, call, stream=True)
    assert last["error"]["message"].endswith("cannot be read: no event of its stream has a part of an answer")


async def test_a_chunk_with_a_message_reaches_callers_as_a_delta(
    gateway: Gateway, registry: Registry, call: SyncCall
) -> None:
    async with FakeEngine() as engine:
        engine.script(streamed({"delta": {"content": "h"}}, {"message": {"content": "i"}, "finish_reason": "stop"}))
        await registry.ready(engine)
        said = await answered(gateway, call, stream=True)
    assert [event["choices"][0]["delta"]["content"] for event in said] == ["h", "i"]
