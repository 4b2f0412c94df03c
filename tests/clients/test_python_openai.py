"""The unmodified Python `openai` client: what it is used for first. The other files of this name have the rest.

What the clients and the service do: `openai-batch-api.md` among the project's reference texts; its sections are named by §.
"""

import threading
import time

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from testing.fakes.embeddings_and_responses import vector
from testing.waiting import wait_for
from tests.clients.batches import ENDLESS, SLOW, created, ended, line, lines_of, resumed, uploaded
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Account, Stack

FLEX = """
select request_id from batch join tenant using (tenant_id) where account_id = %s and kind = 'flex' and finalized_at is null"""
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


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
    raw = client.embeddings.with_raw_response.create(model=EMBEDDER, input="one", encoding_format=kind)  # type: ignore[arg-type]
    sent = raw.http_response.json()["data"][0]["embedding"]
    assert isinstance(sent, list if encoding == "float" else str), "Node's client reads numbers as if they were base64"


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
    with_engine = {MODEL, EMBEDDER, chat_model}  # the API looks once a second which have one
    wait_for(lambda: with_engine <= {model.id for model in client.models.list()}, "both engines are known")
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


def test_a_file_becomes_a_batch_and_the_batch_a_file(client: openai.OpenAI) -> None:
    file_id = uploaded(client, *(line(n) for n in range(20)))
    made = created(client, file_id, metadata={"team": "search"})
    assert (made.object, made.input_file_id, made.metadata) == ("batch", file_id, {"team": "search"})
    assert made.expires_at == made.created_at + 86_400
    batch = ended(client, made)
    assert (batch.status, batch.error_file_id, batch.errors) == ("completed", None, None)
    assert batch.request_counts
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (20, 20, 0)
    usage = batch.to_dict()["usage"]  # no field of 1.x
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0  # type: ignore[index]
    assert batch.output_file_id
    found = lines_of(client, batch.output_file_id)
    assert {each["custom_id"]: each["response"]["body"]["choices"][0]["message"]["content"] for each in found} == {
        f"request-{n}": f"echo: line {n}" for n in range(20)
    }
    assert len({each["id"] for each in found}) == len({each["response"]["request_id"] for each in found}) == 20
    file = client.files.retrieve(batch.output_file_id)
    assert (file.purpose, file.status) == ("batch_output", "processed")
    assert file.bytes == len(client.files.content(batch.output_file_id).content)


def test_a_stream_is_followed_from_the_start_and_resumed_anywhere(client: openai.OpenAI) -> None:
    stream = client.responses.create(model=MODEL, input=f"{SLOW} one two three", background=True, stream=True)
    events, response_id = [], ""
    for event in stream:
        events.append(event)
        if event.type == "response.created":
            response_id = event.response.id
            assert event.response.status == "queued"
        if event.type == "response.output_text.delta":
            break  # the connection is lost
    stream.close()
    assert response_id.startswith("resp_")
    last = events[-1].sequence_number
    assert [event.sequence_number for event in events] == list(range(last + 1))
    rest = list(resumed(client, response_id, last))
    assert [event.sequence_number for event in rest] == list(range(last + 1, last + 1 + len(rest)))
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.id == response_id
    whole = list(resumed(client, response_id, -1))
    assert [event.type for event in whole] == [event.type for event in [*events, *rest]]
    said = "".join(event.delta for event in whole if event.type == "response.output_text.delta")
    assert said == rest[-1].response.output_text.replace(" ", "")
    assert client.responses.retrieve(response_id).output_text == rest[-1].response.output_text
    assert list(resumed(client, response_id, whole[-1].sequence_number))[-1].type == "response.completed"


def test_a_call_that_is_sent_again_joins_the_first(
    client: openai.OpenAI, installation: Stack, account: Account
) -> None:
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
    [(request_id,)] = installation.query(FLEX, account.name)
    account.client.post(f"{account.path}/ai/batches/{request_id}/cancel").raise_for_status()
