"""`service_tier: "flex"` with OpenAI's client: one call, however long it takes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from tests.clients.conftest import ENDLESS, REFUSED, watched
from tests.system.stack import MODEL, Stack, wait_for


def chat(client: OpenAI, text: str, **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=MODEL, messages=messages, service_tier="flex", **more)


def count(stack: Stack) -> int:
    return int(stack.query("select count(*) from batch where kind = 'flex'")[0][0])


def test_a_flex_call_is_answered_from_the_queue(client: OpenAI, stack: Stack) -> None:
    before = count(stack)
    answer = chat(client, "hello")
    assert answer.choices[0].message.content == "echo: hello"
    assert answer.service_tier == "flex"
    response = client.responses.create(model=MODEL, input="hello", service_tier="flex")
    assert (response.output_text, response.service_tier) == ("echo: hello", "flex")
    assert count(stack) == before + 2


def test_what_is_wrong_has_its_status(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="too large"):
        chat(client, REFUSED)
    with pytest.raises(openai.BadRequestError, match="stream: a flex call is answered in one piece"):
        chat(client, "hello", stream=True)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        chat(client, "hello", temperature=9)


def test_a_caller_who_would_time_out_waits_on_and_asks_once(client: OpenAI, stack: Stack) -> None:
    """The engine is away for longer than the client's patience; the blanks keep the line open."""
    before, requests = count(stack), []
    patient = watched(client, requests, timeout=3.0)
    stack.query("update tenant set max_inflight_tokens = 0 returning 1")  # nothing is claimed
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(chat, patient, "after a while")
        wait_for(lambda: count(stack) == before + 1)
        time.sleep(5)
        assert not answer.done()
        stack.query("update tenant set max_inflight_tokens = 1000000000 returning 1")
        assert answer.result(60).choices[0].message.content == "echo: after a while"
    assert len(requests) == 1
    assert count(stack) == before + 1


def test_who_would_rather_not_wait_is_told_so(client: OpenAI, stack: Stack) -> None:
    stack.query("update tenant set max_inflight_tokens = 0 returning 1")
    try:
        batch = stack.submit([{"prompt": "in front"}])
        with pytest.raises(openai.RateLimitError) as busy:
            chat(client, "now or never", extra_body={"options": {"rejectIfBusy": True}})
        assert busy.value.code == "resource_unavailable"
        requests: list[Any] = []
        with pytest.raises(openai.RateLimitError):  # nor does a client that usually tries again
            chat(watched(client, requests), "now or never", extra_body={"options": {"rejectIfBusy": True}})
        assert len(requests) == 1
    finally:
        stack.query("update tenant set max_inflight_tokens = 1000000000 returning 1")
    wait_for(lambda: stack.poll(batch))
    assert wait_for(lambda: _tried(client)) == "echo: now"


def _tried(client: OpenAI) -> str | None:
    try:
        return str(chat(client, "now", extra_body={"options": {"rejectIfBusy": True}}).choices[0].message.content)
    except openai.RateLimitError:
        return None


def test_a_call_that_is_sent_again_joins_the_first(client: OpenAI, stack: Stack) -> None:
    before = count(stack)
    text = f"{ENDLESS} {time.monotonic()}"
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "service_tier": "flex"}
    headers = {"authorization": f"Bearer {client.api_key}"}
    url = f"{client.base_url}chat/completions"

    def ask(retries: int) -> None:
        with pytest.raises(httpx.ReadTimeout):
            again = headers | {"x-stainless-retry-count": str(retries)}
            httpx.post(url, json=body, headers=again, timeout=0.7, trust_env=False)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    assert count(stack) == before + 1
    stack.query("select request_id from batch where kind = 'flex' and finalized_at is null")
    [(request_id,)] = stack.query("select request_id from batch where kind = 'flex' and finalized_at is null")
    stack.client.post(f"/client/v4/accounts/acme/ai/batches/{request_id}/cancel").raise_for_status()
