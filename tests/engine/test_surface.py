"""The real vLLM on every surface: text, usage, schemas, streams, files, refusals; what it tells of itself; its spans.

The first test is sent while the engine still loads.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from openai import OpenAI

from app.engines import catalogue
from app.engines.client import EngineClient
from app.engines.dialects import VLLM_TERMS
from app.headroom.engine_metrics import parse
from app.settings import Settings
from app.trace_context import SpanContext
from testing.fakes.otlp_receiver import receiver
from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests.system.stack import ACCOUNT, MODEL, Stack
from workers.gpu.managed_engine import vllm_command, vllm_environment

pytestmark = pytest.mark.slow

RUN = f"/client/v4/accounts/{ACCOUNT}/ai/run"
CAPITAL = "What is the capital of France?"
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_capital_of_france_is_paris(stack: Stack) -> None:
    """Submitted while the engine still loads: it waits, then the real model answers."""
    request_id = stack.submit(
        [
            {"prompt": "What is the capital of France?", "temperature": 0, "max_tokens": 24},
            {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "n": 1},
        ]
    )
    result = wait_for(lambda: stack.poll(request_id), seconds=LOADING_SECONDS)
    for response in result["responses"]:
        assert "Paris" in response["result"]["response"]
        usage = response["result"]["usage"]
        assert usage["prompt_tokens"] > 5
        assert usage["completion_tokens"] > 3
    assert result["usage"]["total_tokens"] > 20


def test_cached_prompt_tokens_are_reported(stack: Stack) -> None:
    prompt = "Slack water is the short time when the tide does not move. " * 12
    totals = []
    for _ in range(2):
        request_id = stack.submit([{"prompt": prompt, "max_tokens": 4, "temperature": 0}])
        totals.append(wait_for(lambda r=request_id: stack.poll(r))["usage"]["prompt_tokens_details"]["cached_tokens"])  # type: ignore[misc]
    assert totals[0] <= totals[1] > 0  # an item whose first try was cut off has cached tokens in the first batch, too


def test_a_schema_is_kept_and_a_refusal_of_the_engine_is_one_items_error(stack: Stack) -> None:
    schema = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
    request_id = stack.submit(
        [
            {
                "prompt": "Which city is the capital of Italy?",
                "max_tokens": 40,
                "temperature": 0,
                "response_format": {"type": "json_schema", "json_schema": schema},
            },
            {"prompt": "x", "logit_bias": {"999999999": 1}, "max_tokens": 2},
        ]
    )
    good, bad = wait_for(lambda: stack.poll(request_id))["responses"]
    assert good["result"]["response"]["city"] in ("Paris", "Rome")
    assert (bad["success"], bad["result"], bad["error"]["code"]) == (False, None, 5006)


def test_the_snippet_of_the_launch_post_runs_through_the_env_ai_adapter(stack: Stack) -> None:
    command = [
        sys.executable,
        str(EXAMPLES / "env_ai.py"),
        "--url",
        str(stack.client.base_url),
        "--account",
        ACCOUNT,
        "--key",
        stack.key,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "queued" in done.stdout


async def test_the_real_engine_tells_its_name_its_window_and_its_version(engine_url: str, engine_token: str) -> None:
    async with EngineClient(engine_url, {"authorization": f"Bearer {engine_token}"}, timeout_seconds=5) as client:
        seen = await client.look()
        assert await client.task() == "text-generation"
    assert seen.terms == VLLM_TERMS
    assert seen.windows == {MODEL: 8192}
    assert seen.version
    assert seen.policy is None  # it would in development mode


def test_the_status_of_a_managed_engine_is_ok_and_its_protection_inside(stack: Stack, engine_url: str) -> None:
    def calm() -> dict[str, Any] | None:
        """The status once the scheduler in the engine has reported its first steps."""
        said: dict[str, Any] = stack.client.get("/status").json()
        return said if said["status"] in ("ok", "warning") and said["engines"][0]["protection"] == "inside" else None

    request_id = stack.submit([{"prompt": "Say hello.", "max_tokens": 8}])
    assert wait_for(lambda: stack.poll(request_id))
    found = wait_for(calm)
    [engine] = found["engines"]
    expected = {"model": MODEL, "serves": [MODEL], "max_model_len": 8192, "mode": "managed", "state": "ready"}
    assert expected.items() <= engine.items()
    assert engine["scheduling_policy"] == "priority"
    assert not found["problems"]
    assert engine_url not in str(found)


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
    before = generated(engine_url)
    with stack.client.stream("POST", f"{RUN}/{MODEL}", json=body, timeout=LIMIT_SECONDS) as answer:
        lines = answer.iter_lines()  # kept: httpx closes the connection with it
        next(lines)
        assert not at_rest(engine_url)
    wait_for(lambda: at_rest(engine_url), "the request aborted")
    assert generated(engine_url) - before < 1500


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
    url = f"/v1/batches/{batch['id']}"
    done = wait_for(lambda: stack.client.get(url).json(), until=lambda found: found["completed_at"])
    line = orjson.loads(stack.client.get(f"/v1/files/{done['error_file_id']}/content").content)
    error = line["response"]["body"]["error"]
    assert (error["message"], error["code"], line["response"]["status_code"]) == (both, "context_length_exceeded", 400)


@pytest.fixture
def client(stack: Stack, engine_url: str) -> OpenAI:
    return OpenAI(api_key=stack.key, base_url=f"{stack.url}/v1", timeout=LIMIT_SECONDS)


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


# What its output processor does at the end of each request.
SPANS = """
import sys, time
from vllm.tracing import SpanKind, extract_trace_context, init_tracer, instrument_manual
init_tracer("vllm.llm_engine", sys.argv[1])
for header in sys.argv[2:]:
    context = extract_trace_context({"traceparent": header})
    instrument_manual(span_name="llm_request", start_time=time.time_ns(), context=context, kind=SpanKind.SERVER)
"""


def test_the_engines_span_hangs_below_a_recorded_one_and_an_unsampled_request_has_none(tmp_path: Path) -> None:
    model = catalogue.load(Settings().models_file).resolve("smollm2-135m-instruct")
    assert model is not None
    recorded, other = SpanContext.new(), SpanContext.new().unsampled()
    with receiver() as found:
        command = vllm_command(model, tmp_path, 1, otlp_endpoint=f"{found.url}/")
        endpoint = command[command.index("--otlp-traces-endpoint") + 1]
        environment = {**os.environ, **vllm_environment(model)}
        subprocess.run(
            [sys.executable, "-c", SPANS, endpoint, recorded.header, other.header],
            env=environment,
            check=True,
            timeout=300,
        )
    [span] = found.spans
    assert (span.name, span.service) == ("llm_request", "vllm")
    assert (span.trace_id, span.parent) == (recorded.trace_id, recorded.span_id)
