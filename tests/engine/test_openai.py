"""Files, background responses and flex over the real vLLM."""

import json
from typing import Any

import pytest
from openai import OpenAI

from tests.system.stack import MODEL, Stack, wait_for

pytestmark = pytest.mark.engine

CAPITAL = "What is the capital of France?"


@pytest.fixture
def client(stack: Stack, engine_url: str) -> OpenAI:
    key = str(stack.client.headers["authorization"]).removeprefix("Bearer ")
    return OpenAI(api_key=key, base_url=f"{str(stack.client.base_url).rstrip('/')}/v1", timeout=120)


def test_a_mixed_file_is_answered_on_every_route_of_a_text_model(client: OpenAI) -> None:
    said = {"model": MODEL, "temperature": 0}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": CAPITAL}], "max_tokens": 16},
        "/v1/completions": {"prompt": "The capital of France is", "max_tokens": 8},
        "/v1/responses": {"input": CAPITAL, "max_output_tokens": 16},
    }
    lines = [{"custom_id": url, "method": "POST", "url": url, "body": said | body} for url, body in bodies.items()]
    batch = client.batches.create(
        input_file_id="",
        endpoint="/v1/chat/completions",
        completion_window="24h",
        extra_body={"mixed": True, "requests": lines},
    )
    wait_for(lambda: client.batches.retrieve(batch.id).status == "completed", 120)
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id, client.files.content(done.error_file_id or "").text
    answers = [json.loads(each) for each in client.files.content(done.output_file_id).text.splitlines()]
    assert {each["custom_id"] for each in answers} == set(bodies)
    assert all("Paris" in json.dumps(each["response"]["body"]) for each in answers)


def test_a_background_response_streams_and_is_the_same_when_fetched(client: OpenAI) -> None:
    stream = client.responses.create(
        model=MODEL, input=CAPITAL, temperature=0, max_output_tokens=24, background=True, stream=True
    )
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert "Paris" in said
    fetched = client.responses.retrieve(last.response.id)
    assert fetched.output_text == said == last.response.output_text
    assert fetched.usage
    assert fetched.usage.output_tokens > 3


def test_a_flex_call_is_answered(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": CAPITAL}]
    answer = client.chat.completions.create(
        model=MODEL, messages=messages, temperature=0, max_tokens=16, service_tier="flex"
    )
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.service_tier == "flex"
