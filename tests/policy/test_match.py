"""Claims about what the rules of a policy decide."""

from dataclasses import replace
from typing import Any

import pytest

from app.engines import catalogue
from app.policy.language import parse
from app.policy.match import Asked, Decision, Requester, common, decide, narrowed
from app.settings import DEMO_MODELS

MODELS = catalogue.load(DEMO_MODELS)
SMALL, KIMI = "smollm2-135m-instruct", "@cf/moonshotai/kimi-k2.6"
WHO = Requester("acme", "k1", "search", "extract", "sync", critical=True)


def decision(text: str, who: Requester = WHO, used: float = 0.0, **given: Any) -> Decision:
    rules = narrowed(parse(text, MODELS), who)
    asked = {"model": KIMI, "endpoint": "/v1/chat/completions", "est_tokens": 100} | given
    return decide(rules, Asked(**asked), lambda: used)


@pytest.mark.parametrize(
    ("when", "matches"),
    [
        ("", True),
        ('account = "acme"', True),
        ('account = ["other"]', False),
        ('key = ["k0", "k1"]', True),
        ('workflow = "chat"', False),
        ('task = "extract", workflow = "search"', True),
        ('task = "extract", workflow = "chat"', False),
        ('kind = ["batch", "flex"]', False),
        (f'model = "{KIMI}"', True),
        (f'model = "{SMALL}"', False),
        ('endpoint = "/v1/embeddings"', False),
        ("critical = true", True),
        ("critical = false", False),
        ('est_tokens = "<=100"', True),
        ('est_tokens = "<100"', False),
        ('deadline = "<=1h"', False),  # it has none
        ('budget = ">=90"', False),
        ('end_user = "u1"', False),
    ],
)
def test_a_rule_holds_when_all_its_conditions_do(when: str, matches: bool) -> None:
    found = decision(f'[[rule]]\nid = "r"\nwhen = {{ {when} }}\nmax_tokens = 5\n')
    assert (found.rules == ("r",), found.max_tokens == 5) == (matches, matches)


def test_conditions_on_a_window_a_budget_and_an_end_user_hold_where_they_are_met() -> None:
    text = '[[rule]]\nid = "r"\nwhen = { deadline = "<=1h", budget = ">=90%", end_user = "u1" }\nmax_tokens = 5\n'
    queued = Requester("acme", "k1", "search", "extract", "batch", critical=True, deadline=3600)
    assert decision(text, queued, used=90.0, end_user="u1").max_tokens == 5
    assert decision(text, queued, used=89.9, end_user="u1").max_tokens is None


def test_the_first_rule_to_set_an_action_wins_it_and_the_others_still_set_theirs() -> None:
    text = f"""
[[rule]]
id = "a"
max_tokens = 10
[[rule]]
id = "b"
max_tokens = 20
route = "{SMALL}"
[[rule]]
id = "c"
max_tokens = 30
"""
    found = decision(text)
    assert (found.max_tokens, found.route, found.rules) == (10, (SMALL,), ("a", "b"))


def test_a_denial_ends_the_search_and_tells_whom_to_ask() -> None:
    text = """
[[rule]]
id = "stop"
deny = "nights only."
contact = "ops@example.com"
[[rule]]
id = "later"
max_tokens = 3
"""
    found = decision(text)
    assert found.denial is not None
    assert found.denial.message == "Policy rule stop denies this request: nights only. Ask ops@example.com."
    assert (found.max_tokens, found.rules) == (None, ("stop",))


def test_a_rule_that_observes_changes_nothing_and_is_named_apart() -> None:
    found = decision('[[rule]]\nid = "watch"\nobserve = true\ndeny = true\n')
    assert (found.denial, found.rules, found.observed) == (None, (), ("watch",))


def test_models_and_tools_are_allowed_or_denied_by_name() -> None:
    text = f"""
[[rule]]
id = "clinic"
allow = {{ models = ["{SMALL}"], tools = ["lookup", "shell"] }}
deny = {{ tools = ["shell"] }}
"""
    refusal = decision(text).refusal(KIMI)
    assert refusal is not None
    assert refusal.of_model
    assert refusal.message == f"Policy rule clinic allows {SMALL}, not {KIMI}."
    assert decision(text).refusal(SMALL) is None
    assert decision(text, tools=frozenset({"lookup"})).denial is None
    for tool in ("shell", "browse"):
        denial = decision(text, tools=frozenset({"lookup", tool})).denial
        assert denial is not None
        assert denial.message == f"Policy rule clinic does not allow the tool {tool}."


def test_media_come_from_listed_hosts_only_and_a_denial_names_the_contact() -> None:
    text = '[[rule]]\nid = "clinic"\nallow = { media_hosts = [".clinic.example", "a.example"] }\ncontact = "ops@x.example"\n'
    for hosts in ((), ("a.example",), ("img.clinic.example", "a.example")):
        assert decision(text, media=lambda hosts=hosts: frozenset(hosts)).denial is None
    for host in ("clinic.example", "b.a.example", "evilclinic.example"):
        denial = decision(text, media=lambda host=host: frozenset({"a.example", host})).denial
        assert denial is not None
        assert denial.message == f"Policy rule clinic does not allow media of {host}. Ask ops@x.example."


def test_without_a_rule_about_media_a_request_is_not_searched_for_them() -> None:
    assert decision('[[rule]]\nid = "r"\nmax_tokens = 5\n', media=pytest.fail).max_tokens == 5


def test_a_share_takes_that_part_of_the_requests_and_always_the_same() -> None:
    text = f'[[rule]]\nid = "tenth"\nroute = "{SMALL}"\nshare = 10\n'
    drawn = [bool(decision(text, seed=lambda n=n: b"%d" % n).route) for n in range(5000)]
    assert 0.08 < sum(drawn) / len(drawn) < 0.12
    assert drawn == [bool(decision(text, seed=lambda n=n: b"%d" % n).route) for n in range(5000)]


def test_a_fallback_under_a_budget_answers_at_once_and_any_other_waits_for_its_turn() -> None:
    short = f'[[rule]]\nid = "brownout"\nwhen = {{ budget = ">=90" }}\nfallback = ["{SMALL}"]\n'
    assert decision(short, used=95.0).route == (SMALL,)
    assert decision(short, used=50.0).route == ()
    usual = decision(f'[[rule]]\nid = "chain"\nfallback = ["{SMALL}"]\n')
    assert (usual.route, usual.fallback) == ((), (SMALL,))


@pytest.mark.parametrize(
    "rule",
    [
        'when = { model = "smollm2-135m-instruct" }\nmax_tokens = 5',
        'when = { endpoint = "/v1/chat/completions" }\nmax_tokens = 5',
        'when = { end_user = "u" }\nmax_tokens = 5',
        'when = { est_tokens = ">5" }\nmax_tokens = 5',
        'when = { budget = ">=80" }\nmax_tokens = 5',
        "share = 50\nmax_tokens = 5",
        'allow = { tools = ["a"] }',
        'deny = { tools = ["a"] }',
        'allow = { media_hosts = ["a.example"] }',
        'allow = { tool_hosts = ["a.example"] }',
    ],
)
def test_a_rule_that_looks_at_a_request_is_asked_about_each(rule: str) -> None:
    assert common(parse(f'[[rule]]\nid = "r"\n{rule}\n', MODELS)) is None


def test_other_rules_say_the_same_of_all_requests_of_a_requester() -> None:
    text = """
[[rule]]
id = "a"
when = { account = "acme", deadline = "<=1h" }
deny = "no."
[[rule]]
id = "b"
when = { account = "acme" }
sensitive = "tokenize"
max_tokens = 7
deny = { models = ["smollm2-135m-instruct"] }
[[rule]]
id = "c"
observe = true
route = ["smollm2-135m-instruct"]
"""
    for deadline in (None, 60.0):
        rules = narrowed(parse(text, MODELS), replace(WHO, deadline=deadline))
        assert common(rules) == decide(rules, Asked("smollm2-135m-instruct", "/chat/completions", 9)) != Decision()
