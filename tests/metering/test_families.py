"""Claims about prompt families: requests that begin alike have one name, which nobody can guess, and single ones have none."""

import pytest

from app.batches.validation.text_generation import ItemRules, examine
from app.metering import families
from app.metering.families import MIN_REQUESTS, NONE, Families

SECRET = b"a master key of the tests, long enough"
RULES = ItemRules(8192, 100)
SYSTEM = "You are a careful clerk. Read the letter and list its dates. " * 4


def beginning(*messages: tuple[str, str]) -> str:
    return examine({"messages": [{"role": role, "content": text} for role, text in messages]}, RULES).beginning


def name(known: Families, text: str, tenant: int = 1, times: int = MIN_REQUESTS) -> str:
    return known.name(tenant, "w", text, times)


def test_prompts_with_the_same_instructions_are_one_family_whatever_they_ask() -> None:
    first, second = (beginning(("system", SYSTEM), ("user", text)) for text in ("hello", "bye"))
    assert first == second == SYSTEM
    assert beginning(("developer", SYSTEM), ("user", "x")) == SYSTEM


def test_short_instructions_do_not_name_a_family_alone() -> None:
    first, second = (beginning(("system", "Be brief."), ("user", text * 9)) for text in ("hello", "bye"))
    assert first != second


def test_at_most_1024_characters_of_the_instructions_count() -> None:
    assert beginning(("system", "a" * 2000), ("user", "x")) == "a" * 1024


def test_a_name_depends_on_the_text_the_account_and_the_secret_key() -> None:
    names = {
        name(Families(SECRET), "text"),
        name(Families(SECRET), "texts"),
        name(Families(SECRET), "text", tenant=2),
        name(Families(SECRET + b"!"), "text"),
    }
    assert len(names) == 4
    assert {len(each) for each in names} == {12}
    assert name(Families(SECRET), "text") == name(families.of(SECRET), "text")


def test_a_beginning_has_no_name_until_it_has_come_three_times() -> None:
    known = Families(SECRET)
    found = [known.name(1, "w", "text") for _ in range(4)]
    assert found[:2] == [NONE, NONE]
    assert found[2] == found[3] != NONE
    assert known.name(1, "another workflow", "text") == NONE
    assert known.name(1, "w", "", 99) == NONE


def test_what_was_seen_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_MOST_SEEN", 3)
    known = Families(SECRET)
    for text in ("a", "b", "a", "c", "d"):
        known.name(1, "w", text)
    assert known.name(1, "w", "a") != NONE
    assert known.name(1, "w", "b", 2) == NONE
