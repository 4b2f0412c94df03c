"""`service_tier: "flex"` with OpenAI's client: one call, however long it takes."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from openai import OpenAI

from testing.waiting import wait_for
from tests.clients.batches import REFUSED, SLOW, watched
from tests.system.stack import MODEL, Account, Stack

pytestmark = pytest.mark.slow


def chat(client: OpenAI, text: str, **more: Any) -> Any:
    messages: Any = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=MODEL, messages=messages, service_tier="flex", **more)


OPEN = """
select request_id from batch join tenant using (tenant_id)
where account_id = %s and kind = 'flex' and finalized_at is null"""


@pytest.fixture
def count(installation: Stack, account: Account) -> Callable[[], int]:
    """How many flex calls there were."""
    sql = "select count(*) from batch join tenant using (tenant_id) where account_id = %s and kind = 'flex'"
    return lambda: int(installation.query(sql, account.name)[0][0])


@pytest.fixture
def held(installation: Stack, account: Account) -> Iterator[Callable[[], object]]:
    """Nothing of the account is claimed, until this is called."""
    most = "update tenant set max_inflight_tokens = %s where account_id = %s returning 1"
    installation.query(most, 0, account.name)
    yield lambda: installation.query(most, 1_000_000_000, account.name)
    installation.query(most, 1_000_000_000, account.name)


def test_a_flex_call_is_answered_from_the_queue(client: OpenAI, count: Callable[[], int]) -> None:
    before = count()
    answer = chat(client, "hello")
    assert answer.choices[0].message.content == "echo: hello"
    assert answer.service_tier == "flex"
    response = client.responses.create(model=MODEL, input="hello", service_tier="flex")
    assert (response.output_text, response.service_tier) == ("echo: hello", "flex")
    assert count() == before + 2


def test_what_is_wrong_has_its_status(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="too large"):
        chat(client, REFUSED)
    with pytest.raises(openai.BadRequestError, match="too large"):
        chat(client, REFUSED, stream=True)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        chat(client, "hello", temperature=9)


def test_a_flex_call_streams(client: OpenAI, count: Callable[[], int]) -> None:
    before = count()
    chunks = list(chat(client, "hello", stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "echo: hello"
    assert {chunk.service_tier for chunk in chunks} == {"flex"}
    assert chunks[-1].usage.completion_tokens > 0
    assert all(chunk.choices for chunk in chat(client, "hello", stream=True))
    events = list(client.responses.create(model=MODEL, input="hello", service_tier="flex", stream=True))
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "echo:hello"
    assert (events[-1].response.output_text, events[-1].response.service_tier) == ("echo: hello", "flex")
    assert count() == before + 3


def test_a_flex_stream_waits_for_its_turn_and_then_tells_every_token_as_it_comes(
    client: OpenAI, installation: Stack, account: Account, held: Callable[[], object]
) -> None:
    """The client's patience is shorter than the wait; the comments keep the line open."""
    patient = watched(client, [], timeout=3.0)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(patient.responses.create, model=MODEL, input=f"{SLOW} a b", service_tier="flex", stream=True)
        stream = made.result(60)  # its line is open before it runs
        held()
    for event in stream:
        if event.type == "response.output_text.delta":
            assert installation.query(OPEN, account.name)  # it is told while it runs
            break
    rest = [event.type for event in stream]
    assert rest[-1] == "response.completed"
    assert "response.output_text.delta" in rest


def test_a_caller_who_would_time_out_waits_on_and_asks_once(
    client: OpenAI, count: Callable[[], int], held: Callable[[], object]
) -> None:
    """The engine is away for longer than the client's patience; the blanks keep the line open."""
    before, requests = count(), list[Any]()
    patient = watched(client, requests, timeout=3.0)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(chat, patient, "after a while")
        wait_for(lambda: count() == before + 1)
        time.sleep(5)
        assert not answer.done()
        held()
        assert answer.result(60).choices[0].message.content == "echo: after a while"
    assert len(requests) == 1
    assert count() == before + 1


def test_who_would_rather_not_wait_is_told_so(client: OpenAI, account: Account, held: Callable[[], object]) -> None:
    batch = account.submit([{"prompt": "in front"}])
    with pytest.raises(openai.RateLimitError) as busy:
        chat(client, "now or never", extra_body={"options": {"rejectIfBusy": True}})
    assert busy.value.code == "resource_unavailable"
    requests: list[Any] = []
    with pytest.raises(openai.RateLimitError):  # nor does a client that usually tries again
        chat(watched(client, requests), "now or never", extra_body={"options": {"rejectIfBusy": True}})
    assert len(requests) == 1
    held()
    wait_for(lambda: account.poll(batch))
    assert wait_for(lambda: _tried(client)) == "echo: now"


def _tried(client: OpenAI) -> str | None:
    try:
        return str(chat(client, "now", extra_body={"options": {"rejectIfBusy": True}}).choices[0].message.content)
    except openai.RateLimitError:
        return None
