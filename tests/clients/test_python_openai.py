"""The unmodified Python `openai` client, on both base URLs."""

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from testing.fakes.embeddings_and_responses import vector
from tests.clients.batches import EMBEDDER
from tests.system.stack import ACCOUNT, MODEL

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module", params=["/v1", f"/client/v4/accounts/{ACCOUNT}/ai/v1"])
def client(request: pytest.FixtureRequest, base_url: str, api_key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=api_key, base_url=f"{base_url}{request.param}") as client:
        yield client


def test_chat_is_answered_whole_with_cached_tokens(client: openai.OpenAI, chat_model: str) -> None:
    for model in (MODEL, chat_model):
        answer = client.chat.completions.create(model=model, messages=HELLO)
        assert answer.choices[0].message.content == "echo: hello"
        assert answer.usage
        assert answer.usage.prompt_tokens_details
        assert answer.usage.prompt_tokens_details.cached_tokens


def test_chat_streams_with_usage_only_if_asked_for(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "echo: hello"
    assert len(chunks) > 2
    asked = client.chat.completions.create(
        model=MODEL, messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    *_, last = asked
    assert last.usage
    assert last.usage.completion_tokens > 0


def test_text_completions_are_answered_whole_and_streamed(client: openai.OpenAI) -> None:
    assert client.completions.create(model=MODEL, prompt="hello").choices[0].text == "echo: hello"
    stream = client.completions.create(model=MODEL, prompt="hello", stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "echo: hello"


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_embeddings_come_in_order_from_the_engine_of_their_model(client: openai.OpenAI, encoding: str) -> None:
    kind = "float" if encoding == "float" else openai.omit  # left out, the client asks for base64
    found = client.embeddings.create(model=EMBEDDER, input=["one", "two"], encoding_format=kind)  # type: ignore[arg-type]
    for text, each in zip(("one", "two"), found.data, strict=True):
        assert each.embedding == pytest.approx(vector(text), abs=1e-6)


def test_embeddings_of_a_model_that_generates_text_are_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        client.embeddings.create(model=MODEL, input="one")
    assert refused.value.code == "model_not_found"


def test_responses_are_answered_whole_and_streamed(client: openai.OpenAI) -> None:
    assert client.responses.create(model=MODEL, input="hello").output_text == "echo: hello"
    first, *pieces, last = client.responses.create(model=MODEL, input="hello", stream=True)
    assert first.type == "response.created"
    assert len(pieces) > 1
    assert last.type == "response.completed"
    assert last.response.output_text == "echo: hello"


def test_the_models_are_listed_and_found_by_name(client: openai.OpenAI, chat_model: str) -> None:
    assert {MODEL, EMBEDDER, chat_model} <= {model.id for model in client.models.list()}
    assert client.models.retrieve(chat_model).id == chat_model


def test_errors_are_the_clients_own(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="no-such", messages=HELLO)
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError) as unknown:
        client.models.retrieve("no-such")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=HELLO, temperature=9)
    assert (wrong.value.code, wrong.value.param) == ("invalid_value", "temperature")
    with pytest.raises(openai.BadRequestError) as missing:
        client.chat.completions.create(model=MODEL, messages=None)  # type: ignore[arg-type]
    assert (missing.value.code, missing.value.param) == ("missing_required_parameter", "messages")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
