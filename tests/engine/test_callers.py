"""The synchronous surface over the real vLLM: frames, usage, responses, and a client that disconnects."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from app.headroom.engine_metrics import parse
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.system.stack import ACCOUNT, MODEL, Stack

pytestmark = pytest.mark.slow

RUN = f"/client/v4/accounts/{ACCOUNT}/ai/run"
CAPITAL = "What is the capital of France?"


def frames(answer: httpx.Response) -> Iterator[Any]:
    """The data of each event; the last must be [DONE]."""
    last = ""
    for line in answer.iter_lines():
        if line.startswith("data: "):
            last = line.removeprefix("data: ")
            if last != "[DONE]":
                yield orjson.loads(last)
    assert last == "[DONE]"


def test_a_native_stream_says_what_the_whole_answer_says_and_ends_in_its_usage(stack: Stack, engine_url: str) -> None:
    body = {"prompt": CAPITAL, "temperature": 0, "max_tokens": 24}
    whole = stack.client.post(f"{RUN}/{MODEL}", json=body, timeout=LIMIT_SECONDS).json()["result"]
    with stack.client.stream("POST", f"{RUN}/{MODEL}", json={**body, "stream": True}, timeout=LIMIT_SECONDS) as answer:
        said = list(frames(answer))
    assert "".join(frame.get("response", "") for frame in said) == whole["response"]
    assert "Paris" in whole["response"]
    assert said[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] > 3
    assert len(said) > 5  # it came in pieces


def test_openai_chat_and_responses_are_answered_whole_and_streamed(stack: Stack, engine_url: str) -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": CAPITAL}], "temperature": 0, "max_tokens": 24}
    with stack.client.stream(
        "POST", "/v1/chat/completions", json={**chat, "stream": True}, timeout=LIMIT_SECONDS
    ) as answer:
        said = "".join(
            frame["choices"][0]["delta"].get("content") or "" for frame in frames(answer) if frame["choices"]
        )
    assert "Paris" in said
    respond = {"model": MODEL, "input": CAPITAL, "temperature": 0, "max_output_tokens": 24}
    found = stack.client.post("/v1/responses", json=respond, timeout=LIMIT_SECONDS).json()
    [text] = [part["text"] for item in found["output"] if item["type"] == "message" for part in item["content"]]
    assert "Paris" in text
    with stack.client.stream(
        "POST", "/v1/responses", json={**respond, "stream": True}, timeout=LIMIT_SECONDS
    ) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert lines[-1] == "event: response.completed"


def test_a_caller_who_hangs_up_frees_the_engine_at_once(stack: Stack, engine_url: str) -> None:
    body = {"prompt": "Count for ever.", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with stack.client.stream("POST", f"{RUN}/{MODEL}", json=body, timeout=LIMIT_SECONDS) as answer:
        lines = answer.iter_lines()  # kept: httpx closes the connection with it
        next(lines)
        assert not at_rest(engine_url)
    wait_for(lambda: at_rest(engine_url), "the request aborted, which has a minute left to run")


def at_rest(engine_url: str) -> bool:
    """Whether no token is made for half a second."""
    before = generated(engine_url)
    time.sleep(0.5)
    return generated(engine_url) == before


def generated(engine_url: str) -> int:
    return parse(httpx.get(f"{engine_url}/metrics").text).generation_tokens


def test_a_prompt_that_is_too_long_is_refused_by_the_tokenizers_count_or_its_line_has_both_numbers(
    stack: Stack, engine_url: str, engine_token: str
) -> None:
    messages = [{"role": "user", "content": "word " * 9000}]
    asked = {"json": {"messages": messages}, "headers": {"authorization": f"Bearer {engine_token}"}, "timeout": 60}
    count = httpx.post(f"{engine_url}/tokenize", **asked).json()["count"]
    both = (
        f"the prompt has {count} tokens, and 256 are asked for the answer: together beyond the context window of 8192"
    )
    refused = stack.client.post(f"{RUN}/{MODEL}?queueRequest=true", json={"requests": [{"messages": messages}]})
    assert (refused.status_code, refused.json()["errors"][0]["message"]) == (400, f"requests[0].messages: {both}")
    body = {"model": MODEL, "messages": messages, "max_tokens": 256}
    wish = {
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "requests": [{"custom_id": "a", "body": body}],
    }
    batch = stack.client.post("/v1/batches", json=wish).json()
    done = wait_for(lambda: [b for b in [stack.client.get(f"/v1/batches/{batch['id']}").json()] if b["completed_at"]])
    line = orjson.loads(stack.client.get(f"/v1/files/{done[0]['error_file_id']}/content").content)
    error = line["response"]["body"]["error"]
    assert (error["message"], error["code"], line["response"]["status_code"]) == (both, "context_length_exceeded", 400)
