"""The unmodified Python `cloudflare` client; only the base URL and the token are set."""

from collections.abc import Iterator
from typing import Any

import pytest
from cloudflare import AuthenticationError, BadRequestError, Cloudflare

from testing.fakes.embeddings_and_responses import DIMENSIONS, vector
from testing.waiting import wait_for
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Account

QUEUE = {"queueRequest": "true"}


@pytest.fixture(scope="module")
def client(account: Account) -> Iterator[Cloudflare]:
    with Cloudflare(api_token=account.key, base_url=f"{account.url}/client/v4") as client:
        yield client


def run(client: Cloudflare, account: Account, model: str, **body: Any) -> dict[str, Any]:
    """`client.ai.run`; batches have no arguments of their own there, so they go as the extra body."""
    query = QUEUE if "requests" in body else None
    answer: Any = client.ai.run(model, account_id=account.name, extra_body=body, extra_query=query)
    assert isinstance(answer, dict)
    return answer


def finished(client: Cloudflare, account: Account, model: str, request_id: str) -> dict[str, Any]:
    """The result of a batch, polled until it is neither queued nor running."""

    def poll() -> dict[str, Any] | None:
        result = run(client, account, model, request_id=request_id)
        return None if result.get("status") in ("queued", "running") else result

    done = wait_for(poll, "batch done")
    assert done is not None
    return done


def test_prompts_and_messages_are_answered(client: Cloudflare, account: Account, chat_model: str) -> None:
    native: Any = client.ai.run(MODEL, account_id=account.name, prompt="hello", max_tokens=8)
    assert native["response"] == "echo: hello"
    chat: Any = client.ai.run(chat_model, account_id=account.name, messages=[{"role": "user", "content": "hello"}])
    assert chat["choices"][0]["message"]["content"] == "echo: hello"
    assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_texts_are_answered_with_a_vector_each(client: Cloudflare, account: Account) -> None:
    answer: Any = client.ai.run(EMBEDDER, account_id=account.name, text=["one", "two"])
    assert answer["shape"] == [2, DIMENSIONS]
    for given, found in zip(("one", "two"), answer["data"], strict=True):
        assert found == pytest.approx(vector(given))


def test_a_stream_has_native_frames_and_ends_in_done(client: Cloudflare, account: Account) -> None:
    raw = client.ai.with_streaming_response
    with raw.run(MODEL, account_id=account.name, prompt="hello", stream=True) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[0].startswith('data: {"response":')
    assert lines[-1] == "data: [DONE]"


def test_a_batch_is_submitted_with_queue_request_and_polled(
    client: Cloudflare, account: Account, chat_model: str
) -> None:
    items = [{"prompt": text, "external_reference": f"ref-{text}"} for text in ("one", "two")]
    queued = run(client, account, chat_model, requests=items)
    assert (queued["status"], queued["model"]) == ("queued", chat_model)

    done = finished(client, account, chat_model, queued["request_id"])
    said = {r["external_reference"]: r["result"]["choices"][0]["message"]["content"] for r in done["responses"]}
    assert said == {"ref-one": "echo: one", "ref-two": "echo: two"}
    assert done["usage"]["total_tokens"] > 0


def test_a_batch_of_texts_is_answered_with_vectors(client: Cloudflare, account: Account) -> None:
    queued = run(client, account, EMBEDDER, requests=[{"text": "one"}, {"text": ["two", "three"]}])
    one, more = finished(client, account, EMBEDDER, queued["request_id"])["responses"]
    assert one["result"]["data"] == [pytest.approx(vector("one"))]
    assert more["result"]["shape"] == [2, DIMENSIONS]


def test_errors_are_the_clients_own_with_our_codes(client: Cloudflare, account: Account) -> None:
    with pytest.raises(BadRequestError) as unknown:
        client.ai.run("@cf/no/such", account_id=account.name, prompt="x")
    assert unknown.value.errors[0].code == 5007
    with pytest.raises(AuthenticationError):
        client.with_options(api_token="wrong").ai.run(MODEL, account_id=account.name, prompt="x")


def test_the_list_of_models_ends_and_names_every_model_once(
    client: Cloudflare, account: Account, chat_model: str
) -> None:
    names = []
    for model in client.ai.models.list(account_id=account.name):
        names.append(model["name"])  # type: ignore[index]
        assert len(names) < 1000, "the pages do not end"
    assert {MODEL, chat_model} <= set(names)
    assert len(set(names)) == len(names)
