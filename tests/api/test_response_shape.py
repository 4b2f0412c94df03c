"""Models of shape `responses`, as Workers AI serves gpt-oss: the answer has the form of the request."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import pytest

from app.db.pool import Database
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN, frames
from tests.gateway.support import Registry

NAME = "@cf/openai/gpt-oss-120b"
GPT = RUN.replace("smollm2-135m-instruct", NAME)
AI = "/client/v4/accounts/acme/ai"
SAY = {"messages": [{"role": "user", "content": "hello"}]}
ASK: dict[str, Any] = {"input": "hello", "instructions": "Be brief.", "reasoning": {"effort": "low"}}
LISTED = {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]}


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


@pytest.mark.parametrize("name", [NAME, "@cf/openai/gpt-oss-20b"])
@pytest.mark.parametrize("item", [ASK, LISTED])
async def test_an_input_is_answered_with_a_response(
    client: httpx.AsyncClient, engine: FakeEngine, name: str, item: dict[str, Any]
) -> None:
    answer = await client.post(RUN.replace("smollm2-135m-instruct", name), json=item)
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert (result["object"], result["status"]) == ("response", "completed")
    assert result["output"][0]["content"][0]["text"] == "echo: hello"
    assert result["usage"]["cost"] > 0
    [sent] = engine.bodies
    assert {field: sent[field] for field in item} == item
    assert (sent["max_output_tokens"], sent["store"]) == (256, False)


async def test_a_prompt_and_messages_are_answered_with_chat_completions(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    for item in (SAY, {"prompt": "hello"}):
        result = (await client.post(GPT, json=item)).json()["result"]
        assert result["choices"][0]["message"]["content"] == "echo: hello"


async def test_a_streamed_response_has_its_events_and_ends_in_done(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post(GPT, json={**ASK, "stream": True})
    events = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert (events[0], events[-1]) == ("response.created", "response.completed")
    told = frames("\n".join(line for line in answer.text.splitlines() if not line.startswith("event: ")))
    assert told[-1] == "[DONE]"
    assert told[-2]["response"]["usage"]["cost"] > 0
    assert "".join(event["delta"] for event in told[:-1] if event["type"].endswith(".delta")) == "echo:hello"
    chat = frames((await client.post(GPT, json={**SAY, "stream": True})).text)
    assert (chat[0]["object"], chat[-1]) == ("chat.completion.chunk", "[DONE]")


async def test_openais_routes_serve_it_both_ways(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    for base in ("/v1", f"{AI}/v1"):
        response = (await client.post(f"{base}/responses", json={"model": NAME, **ASK})).json()
        assert response["output"][0]["content"][0]["text"] == "echo: hello"
        chat = (await client.post(f"{base}/chat/completions", json={"model": NAME, **SAY})).json()
        assert chat["choices"][0]["message"]["content"] == "echo: hello"


TOOLS = ["code_interpreter", "web_search", "web_search_preview_2025_03_11", "file_search", "mcp"]


@pytest.mark.parametrize("kind", TOOLS)
async def test_tools_that_the_server_would_run_are_refused_by_name(
    client: httpx.AsyncClient, engine: FakeEngine, kind: str
) -> None:
    tools = {"tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}, {"type": kind}]}
    requests = [
        client.post(GPT, json=ASK | tools),
        client.post(GPT, json=SAY | tools),
        client.post(f"{GPT}?queueRequest=true", json={"requests": [ASK | tools]}),
        client.post("/v1/responses", json={"model": NAME, **ASK, **tools}),
    ]
    for request in requests:
        answer = await request
        assert answer.status_code == 400, answer.text
        assert f"tools: {kind} needs a server that runs it, and there is none here" in answer.text
    assert not engine.bodies


REFUSED = [
    ({**ASK, "prompt": "x"}, "needs exactly one of prompt, messages and input; prompt and input were sent"),
    ({"mesages": []}, "none was sent; 'mesages': did you mean messages?"),
    ({"max_output_tokens": 5}, "needs exactly one of prompt, messages and input; none was sent"),
    ({"input": ""}, "input: must be a non-empty string or a list of input items"),
    ({**ASK, "reasoning": "low"}, 'reasoning: must be an object like {\\"effort\\": \\"low\\"}'),
    ({**ASK, "reasoning": {"effort": "maximal"}}, "reasoning.effort: must be one of none, minimal, low, medium, high"),
    ({**ASK, "instructions": 5}, "instructions: must be a string"),
    ({**ASK, "max_tokens": 9}, "max_tokens: with input, the limit of the answer is max_output_tokens"),
    ({**ASK, "max_output_tokens": 9000}, "max_output_tokens: must be an integer between 1 and 8192"),
    ({**ASK, "previous_response_id": "resp_1"}, "previous_response_id: only POST /v1/responses continues"),
]


@pytest.mark.parametrize(("item", "message"), REFUSED)
async def test_what_is_wrong_is_named_synchronous_and_queued(
    client: httpx.AsyncClient, engine: FakeEngine, item: dict[str, Any], message: str
) -> None:
    for url, body in ((GPT, item), (f"{GPT}?queueRequest=true", {"requests": [item]})):
        answer = await client.post(url, json=body)
        assert answer.status_code == 400
        assert message in answer.text


async def test_a_model_of_another_shape_names_the_route_for_input(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    answer = await client.post(RUN, json=ASK)
    assert answer.status_code == 400
    assert "input: this model takes prompt or messages here; send input to …/ai/v1/responses" in answer.text


async def test_its_schemas_take_and_give_both_forms(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    found = (await client.get(f"{AI}/models/schema", params={"model": NAME})).json()["result"]
    given = jsonschema.Draft202012Validator(found["input"])
    assert all(given.is_valid(item) for item in (ASK, LISTED, SAY, {"prompt": "x"}))
    assert not any(
        given.is_valid(item) for item in ({**ASK, **SAY}, {"input": ""}, {**ASK, "reasoning": {"effort": "x"}})
    )
    tools = {"tools": [{"type": "code_interpreter"}]}
    assert not given.is_valid(ASK | tools)
    answers = jsonschema.Draft202012Validator(found["output"])
    for item in (ASK, SAY):
        assert answers.is_valid((await client.post(GPT, json=item)).json()["result"])
