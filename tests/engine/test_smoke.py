"""The real vLLM in a whole installation: a chat, a batch, and the same answers when the engine stood still in its middle."""

import os
import signal
from typing import Any

from app import processes
from testing.waiting import LOADING_SECONDS, wait_for
from tests.engine.support import engine_pids
from tests.system.stack import MODEL, Stack

ITEMS = [
    {"prompt": f"What is the capital of {country}?", "temperature": 0, "max_tokens": 24, "ignore_eos": True}
    for country in ("France", "Italy", "Spain", "Japan", "Egypt", "Peru")
]
RESULTS = "select count(*) from item_result"
STANDS_STILL = "select 1 from engine where reason in ('closed_stale', 'closed_unknown', 'engine_down')"


def test_a_chat_and_a_batch_are_answered_and_an_engine_that_stood_still_says_the_same(stack: Stack) -> None:
    calm = ended(stack, stack.submit(ITEMS))  # it waits while the engine loads
    assert "Paris" in texts(calm)[0]
    assert calm["usage"]["completion_tokens"] == 24 * len(ITEMS)

    chat = {"model": MODEL, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    said = stack.client.post("/v1/chat/completions", json=chat | {"temperature": 0, "max_tokens": 16}, timeout=120)
    assert "Paris" in said.json()["choices"][0]["message"]["content"]

    request_id = stack.submit(ITEMS)
    wait_for(lambda: stack.query("select 1 from engine where batch_in_flight > 0"), what="batch in the engine")
    for pid in engine_pids(stack):
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(lambda: stack.query(STANDS_STILL), what="the worker misses its engine")
        before = stack.query(RESULTS)
        assert stack.poll(request_id) is None
        assert stack.query(RESULTS) == before
    finally:
        for pid in engine_pids(stack):
            os.kill(pid, signal.SIGCONT)
    frozen = ended(stack, request_id)
    assert texts(frozen) == texts(calm)
    assert frozen["usage"]["completion_tokens"] == calm["usage"]["completion_tokens"]
    assert len(processes.titled(engine_pids(stack), "VLLM::EngineCor")) == 1


def ended(stack: Stack, request_id: str) -> dict[str, Any]:
    """The result of a batch."""
    return wait_for(lambda: stack.poll(request_id), seconds=LOADING_SECONDS) or {}


def texts(result: dict[str, Any]) -> list[str]:
    """The answers of a batch in which every item has one."""
    assert all(response["success"] for response in result["responses"])
    return [response["result"]["response"] for response in result["responses"]]
