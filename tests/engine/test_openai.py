"""Files, background responses and flex over the real vLLM."""

import json
from typing import Any

import pytest
from openai import OpenAI

from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests.system.stack import ACCOUNT, MODEL, Stack

pytestmark = pytest.mark.slow

CAPITAL = "What is the capital of France?"


@pytest.fixture
def client(stack: Stack, engine_url: str) -> OpenAI:
    key = str(stack.client.headers["authorization"]).removeprefix("Bearer ")
    return OpenAI(api_key=key, base_url=f"{str(stack.client.base_url).rstrip('/')}/v1", timeout=LIMIT_SECONDS)


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
    wait_for(lambda: client.batches.retrieve(batch.id).status == "completed")
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


def test_a_flex_call_streams(client: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": CAPITAL}]
    said = {"model": MODEL, "temperature": 0, "service_tier": "flex", "stream": True}
    chunks = client.chat.completions.create(messages=messages, max_tokens=16, **said)  # type: ignore[call-overload]
    assert "Paris" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    events = list(client.responses.create(input=CAPITAL, max_output_tokens=16, **said))  # type: ignore[call-overload]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "Paris" in events[-1].response.output_text
    assert events[-1].response.service_tier == "flex"


@pytest.mark.slow
def test_an_answer_without_a_limit_fills_the_context(client: OpenAI) -> None:
    """It leaves about 300 tokens: more than the 256 of Workers AI's routes and the 16 that vLLM gives a completion."""
    body = {"model": MODEL, "prompt": [1000 + n % 3000 for n in range(7900)], "ignore_eos": True}
    batch = client.batches.create(
        input_file_id="",
        endpoint="/v1/completions",
        completion_window="24h",
        extra_body={"requests": [{"custom_id": "1", "body": body}]},
    )
    wait_for(lambda: client.batches.retrieve(batch.id).status == "completed", seconds=LOADING_SECONDS)
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id, client.files.content(done.error_file_id or "").text
    usage = json.loads(client.files.content(done.output_file_id).text)["response"]["body"]["usage"]
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (7900, 8192)


def test_a_model_of_shape_responses_answers_in_the_form_it_was_asked_in(stack: Stack, engine_url: str) -> None:
    url = f"/client/v4/accounts/{ACCOUNT}/ai/run/@cf/openai/gpt-oss-20b"
    asked = {"input": CAPITAL, "temperature": 0, "reasoning": {"effort": "low"}, "max_output_tokens": 16}
    whole = stack.client.post(url, json=asked, timeout=LIMIT_SECONDS).json()["result"]
    assert whole["object"] == "response"
    assert "Paris" in whole["output"][0]["content"][0]["text"]
    streamed = stack.client.post(url, json=asked | {"stream": True}, timeout=LIMIT_SECONDS).text
    assert "event: response.output_text.delta" in streamed
    assert streamed.endswith("data: [DONE]\n\n")
    chat = {"messages": [{"role": "user", "content": CAPITAL}], "temperature": 0, "max_tokens": 16}
    made = stack.client.post(f"{url}?queueRequest=true", json={"requests": [asked, chat]}).json()["result"]

    def ended() -> Any:
        return stack.client.post(url, json={"request_id": made["request_id"]}).json()["result"].get("responses")

    first, second = (each["result"] for each in wait_for(ended))
    assert "Paris" in first["output"][0]["content"][0]["text"]
    assert "Paris" in second["choices"][0]["message"]["content"]
