"""Claims about which models a policy lets answer queued work, of which only the line is known."""

from dataclasses import replace

import pytest

from app.engines import catalogue
from app.policy.language import parse
from app.policy.queued import QueuedWork, lets
from app.settings import DEMO_MODELS

MODELS = catalogue.load(DEMO_MODELS)
SMALL, LARGE, OTHER = "smollm2-135m-instruct", "@cf/moonshotai/kimi-k2.6", "@cf/openai/gpt-oss-20b"
WORK = QueuedWork("acme", "key-1", "tagging", "extract", "batch", False, LARGE, "/v1/chat/completions")


def allowed(rules: str, work: QueuedWork = WORK, model: str = SMALL) -> bool:
    return lets(parse(rules, MODELS), work, model)


@pytest.mark.parametrize(
    ("when", "may"),
    [
        ("{}", False),
        ('{ account = "acme", key = "key-1", workflow = "tagging", task = "extract", kind = "batch" }', False),
        ('{ account = "another" }', True),
        ('{ key = "key-2" }', True),
        ('{ endpoint = "/v1/embeddings" }', True),
        ('{ endpoint = "/v1/chat/completions" }', False),
        ('{ end_user = "somebody" }', False),
        ('{ budget = ">=99" }', False),
        ('{ deadline = "<=1h" }', False),
        (f'{{ model = "{OTHER}" }}', True),
        (f'{{ model = "{LARGE}" }}', False),
        ("{ critical = false }", False),
        ("{ critical = true }", True),
    ],
)
def test_a_rule_forbids_a_model_for_all_work_that_it_might_match(when: str, may: bool) -> None:
    assert allowed(f'[[rule]]\nid = "r"\nwhen = {when}\ndeny = {{ models = ["{SMALL}"] }}') is may
    assert allowed(f'[[rule]]\nid = "r"\nwhen = {when}\nallow = {{ models = ["{LARGE}"] }}') is may


def test_what_is_not_known_of_a_line_meets_every_condition() -> None:
    rule = f'[[rule]]\nid = "r"\nwhen = {{ key = "key-2", workflow = "w" }}\ndeny = {{ models = ["{SMALL}"] }}'
    assert allowed(rule)
    assert not allowed(rule, replace(WORK, key=None, workflow=None))


def test_work_that_a_rule_may_have_routed_may_have_asked_for_any_model() -> None:
    rule = f'[[rule]]\nid = "r"\nwhen = {{ model = "{OTHER}" }}\nallow = {{ models = ["{LARGE}"] }}\n'
    assert allowed(rule)
    assert not allowed(rule + f'[[rule]]\nid = "s"\nroute = "{LARGE}"')


def test_a_rule_that_only_may_match_does_not_hide_the_next_one() -> None:
    both = f'allow = {{ models = ["{LARGE}", "{SMALL}"] }}\n[[rule]]\nid = "s"\nallow = {{ models = ["{LARGE}"] }}'
    assert allowed(f'[[rule]]\nid = "r"\n{both}')
    assert not allowed(f'[[rule]]\nid = "r"\nwhen = {{ est_tokens = "<=10" }}\n{both}')
    assert not allowed(f'[[rule]]\nid = "r"\nshare = 50\n{both}')


def test_a_rule_that_refuses_requests_for_a_model_forbids_it_and_one_that_watches_forbids_nothing() -> None:
    assert not allowed(f'[[rule]]\nid = "r"\nwhen = {{ model = "{SMALL}" }}\ndeny = true')
    assert allowed(f'[[rule]]\nid = "r"\nwhen = {{ model = "{OTHER}" }}\ndeny = true')
    assert allowed(f'[[rule]]\nid = "r"\nobserve = true\ndeny = {{ models = ["{SMALL}"] }}')
