"""Background responses with OpenAI's client: created, followed and resumed, cancelled, deleted; and their webhooks."""

import time
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from testing.waiting import wait_for
from tests.clients.batches import ENDLESS, REFUSED, resumed
from tests.needs import unable
from tests.system.stack import MODEL, Stack

pytestmark = pytest.mark.slow


def ended(client: OpenAI, response: Response) -> Response:
    return wait_for(
        lambda: client.responses.retrieve(response.id),
        until=lambda found: found.status not in ("queued", "in_progress"),
    )


def created(client: OpenAI, text: str, **more: Any) -> Response:
    made = client.responses.create(model=MODEL, input=text, background=True, **more)
    assert isinstance(made, Response)
    return made


def test_a_background_response_is_queued_fetched_and_deleted(client: OpenAI) -> None:
    made = created(client, "hello", metadata={"team": "search"}, instructions="Be brief.")
    assert made.id.startswith("resp_")
    assert made.status in {"queued", "in_progress"}  # a worker may be faster than the answer
    assert (made.object, made.background, made.output, made.error) == ("response", True, [], None)
    done = ended(client, made)
    assert (done.id, done.status, done.output_text) == (made.id, "completed", "echo: hello")
    assert (done.metadata, done.instructions) == ({"team": "search"}, "Be brief.")
    assert done.created_at == made.created_at
    assert done.usage
    assert done.usage.total_tokens == done.usage.input_tokens + done.usage.output_tokens > 0
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError, match="Response with id 'resp_"):
        client.responses.retrieve(made.id)


def test_what_is_wrong_is_told_at_once_or_in_the_response(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Previous response with id 'resp_1' not found"):
        created(client, "hello", previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError, match="store: a background response is stored"):
        created(client, "hello", store=False)
    failed = ended(client, created(client, REFUSED))
    assert failed.status == "failed"
    assert failed.error
    assert failed.error.code == "invalid_prompt"
    assert "too large" in failed.error.message
    for call in (client.responses.retrieve, client.responses.cancel, client.responses.delete):
        for unknown in ("resp_1", "resp_" + 32 * "0"):
            with pytest.raises(openai.NotFoundError):
                call(unknown)


def test_what_a_response_was_asked_is_listed(client: OpenAI) -> None:
    talk: Any = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    asked = [*talk, {"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]
    made = created(client, asked)  # type: ignore[arg-type]
    listed = list(client.responses.input_items.list(made.id, limit=2))
    assert [item.content[0].text for item in listed] == ["hello", "two", "one"]  # type: ignore[union-attr]
    assert [item.content[0].type for item in listed] == ["input_text", "output_text", "input_text"]  # type: ignore[union-attr]
    assert len({item.id for item in listed}) == 3
    forth = client.responses.input_items.list(made.id, order="asc", after=listed[-1].id)
    assert [item.content[0].text for item in forth] == ["two", "hello"]  # type: ignore[union-attr]
    [only] = client.responses.input_items.list(created(client, "hello").id)
    assert (only.type, only.role, only.content[0].text) == ("message", "user", "hello")  # type: ignore[union-attr]
    with pytest.raises(openai.NotFoundError, match="it was not stored, or was deleted"):
        client.responses.input_items.list("resp_" + 32 * "0")
    with pytest.raises(openai.BadRequestError, match="after: 'msg_1' is not in this list"):
        client.responses.input_items.list(made.id, after="msg_1")
    with pytest.raises(openai.BadRequestError, match="limit"):
        client.responses.input_items.list(made.id, limit=0)


def test_a_response_says_again_what_it_was_asked(client: OpenAI) -> None:
    asked: dict[str, Any] = {
        "prompt_cache_key": "support",
        "safety_identifier": "user-7",
        "top_logprobs": 2,
        "truncation": "auto",
        "max_output_tokens": 50,
    }
    usual = dict.fromkeys(asked) | {"top_logprobs": 0, "truncation": "disabled"}
    for given, expected in ((asked, asked), ({}, usual)):
        for tier, served in ((None, "default"), ("auto", "default"), ("flex", "flex")):
            more: dict[str, Any] = {"service_tier": tier} if tier else {}
            whole = client.responses.create(model=MODEL, input="hello", extra_body=given | more)
            events = list(client.responses.create(model=MODEL, input="hello", stream=True, extra_body=given | more))
            told = [event.response for event in events if hasattr(event, "response")]
            assert len(told) >= 2
            for response in (whole, *told):
                said = response.to_dict()
                assert {name: said.get(name) for name in asked} == expected
                assert said["service_tier"] == served
        done = ended(client, created(client, "hello", extra_body=given)).to_dict()
        assert {name: done.get(name) for name in asked} == expected


def test_a_client_continues_responses_of_every_kind(client: OpenAI) -> None:
    first = client.responses.create(model=MODEL, input="one")
    with client.responses.stream(model=MODEL, input="two", previous_response_id=first.id) as stream:
        second = stream.get_final_response()
    done = ended(client, created(client, "three", previous_response_id=second.id))
    assert (done.previous_response_id, done.output_text) == (second.id, "echo: three")
    assert client.responses.retrieve(second.id).output_text == "echo: two"
    fourth = client.responses.create(model=MODEL, input="four", previous_response_id=done.id, store=False)
    for gone in (fourth.id, "resp_1"):
        with pytest.raises(openai.NotFoundError, match="Previous response with id") as refused:
            client.responses.create(model=MODEL, input="five", previous_response_id=gone)
        assert refused.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError, match="flex keeps no turns"):
        client.responses.create(model=MODEL, input="five", previous_response_id=first.id, service_tier="flex")


def test_a_client_holds_a_conversation(client: OpenAI) -> None:
    if not hasattr(client, "conversations"):
        unable("this client has no conversations")
    talk = client.conversations.create(
        metadata={"team": "search"}, items=[{"type": "message", "role": "user", "content": "I am Ada."}]
    )
    client.responses.create(model=MODEL, input="one", conversation=talk.id)
    made = created(client, "two", conversation=talk.id)
    third = client.responses.create(model=MODEL, input="three", conversation={"id": talk.id})
    assert ended(client, made).output_text == "echo: two"
    assert third.conversation
    assert third.conversation.id == talk.id
    listed: list[Any] = list(client.conversations.items.list(talk.id, order="asc", limit=3))
    texts = ["I am Ada.", "one", "echo: one", "two", "echo: two", "three", "echo: three"]
    assert [item.content[0].text for item in listed] == texts
    added = client.conversations.items.create(talk.id, items=[{"role": "user", "content": "a note"}])
    [note] = added.data
    assert client.conversations.items.retrieve(note.id, conversation_id=talk.id) == note  # type: ignore[arg-type]
    client.conversations.items.delete(note.id, conversation_id=talk.id)  # type: ignore[arg-type]
    assert client.conversations.update(talk.id, metadata={"team": "sales"}).metadata == {"team": "sales"}
    assert client.conversations.delete(talk.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(talk.id)


def test_an_answer_that_was_cut_short_is_incomplete(client: OpenAI) -> None:
    cut = ended(client, created(client, "hello", max_output_tokens=1))
    assert cut.status == "incomplete"
    assert cut.incomplete_details
    assert cut.incomplete_details.reason == "max_output_tokens"


def test_cancelling_twice_is_cancelling_once_and_what_is_done_is_done(client: OpenAI) -> None:
    made = created(client, ENDLESS)
    with pytest.raises(openai.ConflictError, match="cancel it first"):
        client.responses.delete(made.id)
    assert {client.responses.cancel(made.id).status for _ in range(2)} == {"cancelled"}
    done = ended(client, created(client, "hello"))
    assert client.responses.cancel(done.id).status == "completed"


def test_a_response_that_does_not_stream_tells_its_end_to_who_follows(client: OpenAI) -> None:
    done = ended(client, created(client, "hello"))
    [event] = resumed(client, done.id, -1)
    assert (event.type, event.response.id) == ("response.completed", done.id)
    stopped = created(client, ENDLESS, stream=False)
    client.responses.cancel(stopped.id)
    assert len(list(resumed(client, stopped.id, -1))) == 1


def test_a_request_that_is_sent_again_is_not_queued_again(client: OpenAI) -> None:
    text = f"once only {time.monotonic()}"
    first = created(client, text)
    again = created(client, text, extra_headers={"x-stainless-retry-count": "1"})
    assert again.id == first.id
    assert created(client, text).id != first.id
    keys = {"Idempotency-Key": text}
    assert created(client, text, extra_headers=keys).id == created(client, text, extra_headers=keys).id


def test_ends_of_responses_are_told_by_webhook(client: OpenAI, installation: Stack) -> None:
    if not hasattr(client.webhooks, "create"):
        unable("this client cannot make webhook endpoints")
    types = ["response.completed", "response.failed", "response.cancelled", "response.incomplete"]
    made = client.webhooks.create(name="r", url="https://127.0.0.1:9/hook", event_types=types)  # type: ignore[arg-type]
    told = "select e.kind from event e join batch b using (batch_id) where b.request_id::text = %s"
    expected = {"hello": "response.completed", REFUSED: "response.failed", ENDLESS: "response.cancelled"}
    try:
        for text, kind in expected.items():
            response = created(client, text)
            if text == ENDLESS:
                client.responses.cancel(response.id)
            name = response.id.removeprefix("resp_")
            query = told % f"'{name[:8]}-{name[8:12]}-{name[12:16]}-{name[16:20]}-{name[20:]}'"
            assert wait_for(lambda query=query: installation.query(query)) == [(kind,)]  # type: ignore[misc]
        cut = created(client, "hello", max_output_tokens=1)
        assert ended(client, cut).status == "incomplete"
    finally:
        client.webhooks.delete(made.id)
