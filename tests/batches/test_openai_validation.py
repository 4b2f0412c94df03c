"""The rules of the OpenAI routes besides chat, and the names in their refusals."""

from collections.abc import Callable
from typing import Any

import pytest

from app.batches.validation.openai import completion, embedding, response
from app.batches.validation.text_generation import ItemError, ItemFacts, ItemRules, examine

RULES = ItemRules(context_window=100, default_max_tokens=16, names=frozenset({"m"}), stream=True)
Check = Callable[[Any, ItemRules], ItemFacts]


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("four", 2 + 16), (["four", "four"], 4 + 32), ([1, 2, 3], 3 + 16), ([[1, 2], [3]], 3 + 32)],
)
def test_a_completion_takes_a_text_or_token_ids_or_a_list_of_either(prompt: object, tokens: int) -> None:
    assert completion({"prompt": prompt}, RULES).est_tokens == tokens


def test_an_embedding_generates_nothing() -> None:
    facts = embedding({"input": ["four", "four"]}, RULES)
    assert (facts.est_tokens, facts.answer_tokens) == (4, 0)


def test_a_response_takes_a_text_or_input_items_and_its_own_limit() -> None:
    assert response({"input": "four", "max_output_tokens": 5}, RULES).answer_tokens == 5
    items = [{"role": "user", "content": [{"type": "input_text", "text": "four four"}]}]
    assert response({"input": items}, RULES).est_tokens == 4 // 4 + 9 // 4 + 16


@pytest.mark.parametrize("role", ["control", "agent.2", "tool response", "\u52a9\u624b", "x" * 64])
def test_any_word_may_be_a_role_of_a_chat_and_of_a_response(role: str) -> None:
    said = [{"role": role, "content": "x"}]
    assert examine({"messages": said}, RULES).answer_tokens == response({"input": said}, RULES).answer_tokens == 16


@pytest.mark.parametrize("role", ["", "a\nb", "\x9bm", "x" * 65, 5, ["user"]])
def test_what_can_be_no_role_is_named_on_both(role: Any) -> None:
    said = [{"role": role, "content": "x"}]
    for check, item, field in ((examine, {"messages": said}, "messages"), (response, {"input": said}, "input")):
        with pytest.raises(ItemError, match="1 to 64 characters") as told:
            check(item, RULES)
        assert told.value.field == f"{field}[0].role"


@pytest.mark.parametrize(("check", "name"), [(completion, "prompt"), (embedding, "input"), (response, "input")])
def test_a_text_is_refused_for_its_length_only_if_it_is_certainly_too_long(check: Check, name: str) -> None:
    assert check({name: "x" * 16 * 80}, RULES).est_tokens >= 320  # five times the window by the usual measure
    with pytest.raises(ItemError, match="at least 101 tokens"):
        check({name: "x" * 16 * 101}, RULES)


@pytest.mark.parametrize(
    ("check", "item", "field"),
    [
        (completion, {}, "prompt"),
        (completion, {"prompt": ""}, "prompt"),
        (completion, {"prompt": ["a", 1]}, "prompt"),
        (completion, {"prompt": [-1]}, "prompt"),
        (completion, {"prompt": "a", "max_tokens": 101}, "max_tokens"),
        (completion, {"prompt": "a", "priority": -1}, "priority"),
        (completion, {"prompt": [1] * 90, "max_tokens": 20}, "max_tokens"),
        (embedding, {"input": None}, "input"),
        (embedding, {"input": [1] * 101}, "input"),
        (embedding, {"input": ["a"] * 2049}, "input"),
        (embedding, {"input": "a", "stream": True}, "stream"),
        (response, {"input": []}, "input"),
        (response, {"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        (response, {"input": "a", "background": True}, "background"),
        (response, {"input": "a", "temperature": 9}, "temperature"),
        (response, {"input": "a", "service_tier": "wow"}, "service_tier"),
        (response, {"input": "a", "text": {"format": {"schema": {"maxLength": 5000}}}}, "text.format"),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_field(check: Check, item: dict[str, object], field: str) -> None:
    with pytest.raises(ItemError) as refused:
        check(item, RULES)
    assert refused.value.field == field
