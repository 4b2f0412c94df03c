"""A background response that is streamed survives the death of the process that serves it."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from testing.waiting import LIMIT_SECONDS, wait_for
from tests.system.stack import MODEL, Stack, running

pytestmark = pytest.mark.slow

WORDS = "one two three four five six seven eight nine ten"
PAUSE = 0.3  # of the engine between two events


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running() as stack:
        stack.script({"mode": "answer", "pause": PAUSE})
        yield stack


def begun(stack: Stack) -> str:
    """The id of a response of which some words are said."""
    body = {"model": MODEL, "input": WORDS, "background": True, "stream": True}
    with stack.client.stream("POST", "/v1/responses", json=body, timeout=LIMIT_SECONDS) as answer:
        response_id = ""
        for event in _events(answer):
            if event["type"] == "response.created":
                response_id = event["response"]["id"]
            if event["type"] == "response.output_text.delta":
                return response_id
    raise AssertionError("no word was said")


def followed(stack: Stack, response_id: str, after: int = -1) -> list[dict[str, Any]]:
    """All its events from there, however often the connection is lost."""
    found: list[dict[str, Any]] = []

    def follow() -> bool:
        at = found[-1]["sequence_number"] if found else after
        query = {"stream": "true", "starting_after": at}
        with stack.client.stream("GET", f"/v1/responses/{response_id}", params=query, timeout=LIMIT_SECONDS) as answer:
            answer.raise_for_status()
            for event in _events(answer):
                found.append(event)
        return found[-1]["type"] == "response.completed"

    def tried() -> bool:
        try:
            return follow()
        except httpx.HTTPError:
            return False

    wait_for(tried)
    return found


def _events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def _said(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def test_who_follows_goes_on_where_the_killed_api_left_off(stack: Stack) -> None:
    response_id = begun(stack)
    stack.kill("api")
    events = followed(stack, response_id)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert _said(events) == f"echo: {WORDS}".replace(" ", "")
    assert stack.query("select count(*) from response_events")[0][0] < len(events) + 1


def test_a_killed_worker_begins_the_answer_again_and_the_numbers_go_on(stack: Stack) -> None:
    response_id = begun(stack)
    stack.kill("gpu-worker")
    events = followed(stack, response_id)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert _said(events).endswith(f"echo: {WORDS}".replace(" ", ""))
    assert len(_said(events)) > len(f"echo: {WORDS}".replace(" ", ""))
    final = stack.client.get(f"/v1/responses/{response_id}").json()
    assert final == events[-1]["response"]
