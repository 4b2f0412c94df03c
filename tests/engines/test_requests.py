"""Claims about the engine's request that is built from a caller's item."""

from typing import Any

import orjson
import pytest

from app.engines.requests import (
    CHAT,
    COMPLETIONS,
    RESPONSES,
    Target,
    build,
    response_format,
    tenant_salt,
)
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

TARGET = Target("smollm2", 256, 8192)
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "schema": {"type": "string"}}}


def sent(item: dict[str, Any], endpoint: str = CHAT) -> tuple[str, dict[str, Any]]:
    request = build(item, endpoint, TARGET, "salt")
    return request.route, orjson.loads(request.body)


def test_an_item_is_sent_as_the_lowest_class_without_streaming_under_the_served_name() -> None:
    route, body = sent({"messages": [{"role": "user", "content": "hi"}], "model": "gpt-4", "stream": True})
    assert route == CHAT
    assert body == {
        "messages": [{"role": "user", "content": "hi"}],
        "model": "smollm2",
        "stream": False,
        "priority": 10,
        "cache_salt": "salt",
        "max_tokens": 256,
    }


def test_a_prompt_becomes_a_user_message() -> None:
    route, body = sent({"prompt": "hi", "messages": None})
    assert (route, body["messages"], "prompt" in body) == (CHAT, [{"role": "user", "content": "hi"}], False)


def test_a_raw_prompt_goes_to_completions_as_it_is() -> None:
    route, body = sent({"prompt": "hi", "raw": True})
    assert (route, body["prompt"], "messages" in body, "raw" in body) == (COMPLETIONS, "hi", False, False)


def test_a_completions_item_keeps_its_prompt() -> None:
    assert sent({"prompt": ["a", "b"]}, COMPLETIONS)[1]["prompt"] == ["a", "b"]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_the_callers_own_limit_stands(field: str) -> None:
    body = sent({"prompt": "hi", field: 7})[1]
    assert body[field] == 7
    assert 256 not in body.values()


def test_options_and_unknown_fields_pass() -> None:
    item = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "seed": 1, "stop": ["x"], "new": 1}
    assert sent(item)[1].items() >= item.items()


def test_null_content_becomes_empty_except_beside_tool_calls() -> None:
    calling = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    messages = sent({"messages": [{"role": "user", "content": None}, calling]})[1]["messages"]
    assert messages == [{"role": "user", "content": ""}, calling]


@pytest.mark.parametrize("field", sorted(ENGINE_PRIVATE_FIELDS))
def test_no_private_field_of_the_engine_is_passed_on(field: str) -> None:
    body = sent({"prompt": "hi", field: "theirs"})[1]
    assert body.get(field) != "theirs"


def test_what_is_for_us_is_not_sent() -> None:
    body = sent({"prompt": "hi", "external_reference": "r", "requests": [], "stream_options": {}})[1]
    assert not {"external_reference", "requests", "stream_options"} & body.keys()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (SCHEMA, {"name": "response", "schema": SCHEMA}),
        ({"name": "city", "schema": SCHEMA, "strict": True}, {"name": "city", "schema": SCHEMA, "strict": True}),
        ({"schema": SCHEMA}, {"name": "response", "schema": SCHEMA}),
    ],
)
def test_both_spellings_of_a_json_schema_become_openais(given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert response_format({"type": "json_schema", "json_schema": given}) == {
        "type": "json_schema",
        "json_schema": expected,
    }


def test_other_response_formats_are_left_alone() -> None:
    assert response_format({"type": "json_object"}) == {"type": "json_object"}


def test_each_tenant_has_its_own_salt_that_nobody_can_guess_without_the_secret() -> None:
    salts = {tenant_salt(secret, tenant) for secret in (b"a", b"b") for tenant in (1, 2)}
    assert len(salts) == 4
    assert tenant_salt(b"a", 1) == tenant_salt(b"a", 1)


def test_a_synchronous_stream_goes_first_and_ends_with_its_usage() -> None:
    item = {"prompt": "hi", "stream": True, "stream_options": {"include_usage": False}}
    body = orjson.loads(build(item, CHAT, TARGET, "salt", synchronous=True, stream=True).body)
    assert (body["priority"], body["stream"], body["stream_options"]) == (0, True, {"include_usage": True})


@pytest.mark.parametrize("given", [{}, {"max_tokens": None}, {"max_completion_tokens": None}])
def test_an_open_ended_chat_is_sent_without_a_limit(given: dict[str, Any]) -> None:
    item = {"messages": [{"role": "user", "content": "hi"}], "min_tokens": 3, "ignore_eos": True, **given}
    body = orjson.loads(build(item, CHAT, TARGET, "salt", open_ended=True).body)
    assert [body.get(name) for name in ("max_tokens", "max_completion_tokens")] == [None, None]
    assert (body["min_tokens"], body["ignore_eos"]) == (3, True)


def test_an_open_ended_response_is_sent_without_a_limit() -> None:
    assert "max_output_tokens" not in orjson.loads(build({"input": "hi"}, RESPONSES, TARGET, "s", open_ended=True).body)
    assert orjson.loads(build({"input": "hi"}, RESPONSES, TARGET, "s").body)["max_output_tokens"] == 256


def test_an_open_ended_text_completion_is_sent_the_whole_window_which_the_engine_cuts_to_what_is_left() -> None:
    """Without a limit vLLM would end it after 16 tokens."""
    for given in ({}, {"max_tokens": None}):
        body = orjson.loads(build({"prompt": "hi", **given}, COMPLETIONS, TARGET, "salt", open_ended=True).body)
        assert body["max_tokens"] == TARGET.context_window


@pytest.mark.parametrize("endpoint", [CHAT, COMPLETIONS])
def test_the_callers_own_limit_stands_on_an_open_ended_route_too(endpoint: str) -> None:
    assert orjson.loads(build({"prompt": "hi", "max_tokens": 7}, endpoint, TARGET, "s", open_ended=True).body)[
        "max_tokens"
    ] == (7)
