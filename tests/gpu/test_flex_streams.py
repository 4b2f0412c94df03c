"""Flex calls that stream, from the call over queue, worker and engine back to its caller."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from testing.waiting import LIMIT_SECONDS, eventually
from tests.gpu.world import MODEL, World

PROMPT = "a question about the sea"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "service_tier": "flex", "stream": True}
AGAIN = "The answer started again after its engine was lost; send the call again"


async def streamed(client: httpx.AsyncClient, **more: Any) -> list[Any]:
    """The data of the whole stream."""
    answer = await client.post("/v1/chat/completions", json=CHAT | more, timeout=LIMIT_SECONDS)
    assert answer.status_code == 200, answer.text
    return read(answer)


def read(answer: httpx.Response) -> list[Any]:
    """The data of a stream."""
    data = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [each if each == "[DONE]" else json.loads(each) for each in data]


def text(events: list[Any]) -> str:
    """What a caller read."""
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events if "choices" in event)


async def test_the_result_that_the_queue_keeps_is_the_whole_answer(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    async with world.worker():
        events = await streamed(client)
    assert events[-1] == "[DONE]"
    assert text(events) == f"echo: {PROMPT}"
    [(ok, body)] = await world.fetch("select ok, body from item_result")
    answer = json.loads(bytes(body))
    assert ok
    assert (answer["object"], answer["choices"][0]["message"]["content"]) == ("chat.completion", f"echo: {PROMPT}")
    assert answer["usage"]["completion_tokens"] == 4


async def test_a_stream_without_usage_is_not_repeated_and_its_tokens_are_estimated(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    """A caller has read it."""
    world.engine.stream_usage = False
    async with world.worker(request_attempts=3):
        events = await streamed(client)
    assert (text(events), events[-1]) == (f"echo: {PROMPT}", "[DONE]")
    assert len(world.engine.bodies) == 1
    [(ok, body)] = await world.fetch("select ok, body from item_result")
    usage = json.loads(bytes(body))["usage"]
    assert ok
    assert usage["completion_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_a_try_that_failed_before_its_first_word_is_not_noticed(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    world.engine.script({"mode": "error", "times": 1})
    async with world.worker(request_attempts=3):
        events = await streamed(client)
    assert (text(events), events[-1]) == (f"echo: {PROMPT}", "[DONE]")
    assert len(world.engine.bodies) == 2


async def test_an_answer_that_is_begun_again_ends_the_stream_with_an_error_and_is_told_once(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    world.engine.answer_tokens, world.engine.token_seconds = 12, 0.02
    world.engine.script({"mode": "die", "after": 4, "times": 1})
    async with world.worker(request_attempts=3):
        events = await streamed(client)
        await world.until("exists (select from batch where finalized_at is not null)")
    assert events[-1]["error"]["message"] == AGAIN
    assert f"echo: {PROMPT}".startswith(text(events[:-1]))
    assert text(events[:-1])
    again = await client.post(
        "/v1/chat/completions", json=CHAT, headers={"x-stainless-retry-count": "1"}, timeout=LIMIT_SECONDS
    )
    assert text(read(again)) == f"echo: {PROMPT}"
    assert len(world.engine.bodies) == 2


async def test_what_the_engine_refuses_has_its_status(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    world.engine.script({"mode": "status", "status": 400, "message": "no such voice"})
    async with world.worker():
        answer = await client.post("/v1/chat/completions", json=CHAT)
    assert answer.status_code == 400
    assert "no such voice" in answer.text


async def test_an_answer_whose_events_were_lost_is_told_in_one_piece(
    world: World,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.gpu.stream_log.StreamLogWriter.add", lambda self, event: None)
    async with world.worker():
        events = await streamed(client, stream_options={"include_usage": True})
        response = await client.post(
            "/v1/responses", json={"model": MODEL, "input": "hello", "service_tier": "flex", "stream": True}
        )
    assert text(events[:1]) == f"echo: {PROMPT}"
    assert [event["usage"]["completion_tokens"] for event in events[1:-1]] == [4]
    kinds = [line.removeprefix("event: ") for line in response.text.splitlines() if line.startswith("event: ")]
    assert kinds == ["response.created", "response.completed"]


async def test_a_call_that_somebody_hears_does_not_yield(
    world: World,
    client: httpx.AsyncClient,
) -> None:
    world.engine.answer_tokens, world.engine.token_seconds = 20, 0.03
    async with world.worker() as running:
        ledger = running.worker._runner.ledger
        call = asyncio.create_task(streamed(client))
        await eventually(lambda: len(ledger.calls) == 1)
        assert ledger.victims(1) == []
        assert text(await call) == f"echo: {PROMPT}"
