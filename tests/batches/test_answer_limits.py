"""The limit and the estimate of an answer: from the caller's limit, the route's rule, `min_tokens` and `ignore_eos`."""

from typing import Any

import pytest

from app.batches.validation.openai import completion, response
from app.batches.validation.text_generation import ItemError, ItemFacts, ItemRules, examine
from app.openai_codes import OpenAICode

WINDOW = 1000
NATIVE = ItemRules(WINDOW, default_max_tokens=256)
OPENAI = ItemRules(WINDOW, default_max_tokens=256, usual_tokens=90)


def facts(rules: ItemRules, **item: Any) -> ItemFacts:
    return examine({"prompt": "x" * 320} | item, rules)  # at least 20 tokens


def refused(rules: ItemRules, **item: Any) -> ItemError:
    with pytest.raises(ItemError) as error:
        facts(rules, **item)
    return error.value


def limits(found: ItemFacts) -> tuple[int, int]:
    return found.answer_tokens, found.most_tokens


def test_without_a_limit_a_native_answer_ends_at_the_default_and_an_open_one_at_the_window() -> None:
    assert limits(facts(NATIVE)) == limits(facts(NATIVE, max_tokens=None)) == (256, 256)
    assert limits(facts(OPENAI)) == limits(facts(OPENAI, max_tokens=None)) == (90, 980)
    assert facts(OPENAI).est_tokens == facts(NATIVE).est_tokens - 256 + 90


def test_the_callers_limit_counts_whichever_the_route() -> None:
    for rules in (NATIVE, OPENAI):
        assert limits(facts(rules, max_tokens=700)) == (700, 700)
        assert limits(facts(rules, max_tokens=700, max_completion_tokens=5)) == (5, 5)


def test_each_of_several_answers_counts() -> None:
    assert limits(facts(OPENAI, n=3)) == (270, 2940)
    assert limits(completion({"prompt": ["a", "b"], "n": 2}, OPENAI)) == (360, 4000)
    assert limits(response({"input": "x" * 320}, OPENAI)) == (90, 980)


def test_an_answer_is_not_taken_to_be_shorter_than_it_must_be() -> None:
    assert limits(facts(OPENAI, min_tokens=400)) == (400, 980)
    assert limits(facts(OPENAI, min_tokens=3)) == (90, 980)
    assert limits(facts(OPENAI, ignore_eos=True)) == (980, 980)
    assert limits(facts(OPENAI, ignore_eos=True, max_tokens=30)) == (30, 30)
    assert limits(facts(OPENAI, ignore_eos=False)) == (90, 980)


@pytest.mark.parametrize(
    ("rules", "item", "message"),
    [
        (NATIVE, {"max_tokens": 5}, "must not be above max_tokens, which is 5, got 300"),
        (OPENAI, {"max_completion_tokens": 5}, "must not be above max_completion_tokens, which is 5, got 300"),
        (
            NATIVE,
            {},
            "must not be above the limit of the answer, which is 256 where none is set, got 300; set max_tokens",
        ),
    ],
)
def test_an_answer_that_must_be_longer_than_it_may_be_is_refused(
    rules: ItemRules, item: dict[str, Any], message: str
) -> None:
    error = refused(rules, min_tokens=300, **item)
    assert (error.field, error.message) == ("min_tokens", message)


def test_an_answer_that_must_be_longer_than_what_the_prompt_leaves_is_refused() -> None:
    assert facts(OPENAI, min_tokens=980)
    error = refused(OPENAI, min_tokens=981)
    assert "must not be above the 980 tokens that the prompt leaves of the context window" in error.message
    assert refused(OPENAI, min_tokens=-1).field == "min_tokens"
    assert refused(OPENAI, ignore_eos="yes").field == "ignore_eos"


def test_only_a_prompt_that_leaves_no_room_at_all_is_refused_where_no_limit_is_set() -> None:
    assert limits(facts(OPENAI, prompt="x" * 16 * 999)) == (1, 1)
    error = refused(OPENAI, prompt="x" * 16 * 1000)
    assert error.field == "prompt"
    assert error.message.endswith("1000 tokens, which leaves no room for an answer in the context window of 1000")
    assert error.reason is OpenAICode.TOO_LONG
    assert "256 are usual for the answer" in refused(NATIVE, prompt="x" * 16 * 999).message
