"""Claims about the text of a policy: what it may say, and that every error is named with its line, its rule and its mend."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines import catalogue
from app.policy.language import parse
from app.policy.problems import PolicyError, Problem
from app.policy.rules import Bound
from app.settings import DEMO_MODELS

MODELS = catalogue.load(DEMO_MODELS)
SMALL = "smollm2-135m-instruct"
KIMI = "@cf/moonshotai/kimi-k2.6"
EXAMPLE = f"""
[[rule]]
id = "small-first"
when = {{ task = ["extract"], model = "{KIMI}", est_tokens = "<=4000" }}
route = "{SMALL}"
share = 10 # per cent, by hash
[[rule]]
id = "brownout"
when = {{ critical = false, budget = ">=90" }}
fallback = ["{SMALL}"]
[[rule]]
id = "clinic"
when = {{ account = "clinic" }}
allow = {{ models = ["HuggingFaceTB/SmolLM2-135M-Instruct"], tools = ["lookup"] }}
deny = {{ tools = ["shell"] }}
contact = "platform@clinic.example"
"""


def problems(text: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse(text, MODELS)
    return [str(problem) for problem in caught.value.problems]


def rule(fields: str) -> str:
    return f'[[rule]]\nid = "one"\n{fields}\n'


def test_a_policy_is_read_with_its_conditions_and_actions() -> None:
    small, brownout, clinic = parse(EXAMPLE, MODELS)
    assert small.route == (SMALL,)
    assert small.share == 10
    assert small.when.texts == {"task": {"extract"}, "model": {KIMI}}
    assert small.when.bounds == {"est_tokens": Bound("<=", 4000)}
    assert (brownout.when.critical, brownout.when.bounds["budget"], brownout.fallback) == (
        False,
        Bound(">=", 90),
        (SMALL,),
    )
    assert clinic.allow.models == {SMALL}  # by its real name
    assert (clinic.allow.tools, clinic.deny.tools) == ({"lookup"}, {"shell"})


def test_an_empty_policy_has_no_rules() -> None:
    assert parse("", MODELS) == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[rule]\n", "line 1: policy: is not TOML"),
        ('[rules]\nid = "x"\n', "line 1: rules: is unknown; a policy has [[rule]] tables"),
        ('[rule]\nid = "x"\n', "line 1: rule: must be [[rule]] tables, with two brackets"),
        ('[[rule]]\nroute = "m"\n', "rule number 1, id: must be 1 to 64 of a-z"),
        (rule("deny = true") * 2, "line 5: rule one, id: is used by an earlier rule"),
        (rule('rute = "m"'), "line 3: rule one, rute: is unknown; did you mean route?"),
        (
            rule('redact = "tokenize"'),
            "line 3: rule one, redact: is unknown; did you mean sensitive?",
        ),
        (
            rule('sensitive = { emial = "off" }'),
            "line 3: rule one, sensitive.emial: is no kind; choose from secret, jwt, email, iban, card, ssn, phone, "
            "or name a pattern so",
        ),
        (
            rule('sensitive = "hide"'),
            "line 3: rule one, sensitive: must be one of off, report, tokenize, remove, refuse, or a table of modes by kind, "
            "not 'hide'",
        ),
        (
            rule("sensitive = { patterns = { patient = '(' } }"),
            "line 3: rule one, sensitive.patterns.patient: is no pattern of RE2: missing ): (",
        ),
        (
            rule("sensitive = { patterns = { Patient = 'P' } }"),
            "line 3: rule one, sensitive.patterns.Patient: must have a name of 1 to 12 of a-z, 0-9 and _, that no other kind has",
        ),
        (rule('encrypt = "yes"'), "line 3: rule one, encrypt: must be true or false"),
        (
            rule('route = "smollm2-135m"'),
            "line 3: rule one, route: no such model 'smollm2-135m'; did you mean smollm2-135m-instruct?",
        ),
        (
            rule('deny = true\nwhen = { model = "nothing" }'),
            "line 4: rule one, when.model: no such model 'nothing'",
        ),
        (rule('deny = true\nwhen = { taks = "x" }'), "line 4: rule one, when.taks: is unknown; did you mean task?"),
        (
            rule("deny = true\nwhen = { task = 3 }"),
            "line 4: rule one, when.task: must be a string or a list of strings",
        ),
        (
            rule('deny = true\nwhen = { kind = "stream" }'),
            "when.kind: 'stream' is no kind of request; choose from sync, batch",
        ),
        (
            rule('deny = true\nwhen = { endpoint = "chat" }'),
            "when.endpoint: 'chat' is no route; write it like /v1/chat",
        ),
        (
            rule("deny = true\nwhen = { est_tokens = 4000 }"),
            'when.est_tokens: must be a number of tokens with a sign, like "<=4000"',
        ),
        (
            rule('deny = true\nwhen = { deadline = "<=1" }'),
            'when.deadline: must be a length of time with a sign, like "<=1h"',
        ),
        (rule('deny = true\nwhen = { budget = "90" }'), 'when.budget: must be a percentage with a sign, like ">=90"'),
        (rule('deny = true\nwhen = { critical = "no" }'), "when.critical: must be true or false"),
        (rule("deny = false"), "line 3: rule one, deny: must be true, the reason as a text"),
        (rule("deny = { hosts = [] }"), "deny.hosts: is unknown; choose from models, tools"),
        (rule("allow = []"), "allow: must be a table of names"),
        (rule('allow = { webhook_hosts = ["https://x"] }'), "allow.webhook_hosts: 'https://x' is no host name"),
        (rule('allow = { media_hosts = ["x.example:80"] }'), "allow.media_hosts: 'x.example:80' is no host name"),
        (rule('deny = { media_hosts = ["x.example"] }'), "deny.media_hosts: is unknown; choose from models, tools"),
        (
            rule('when = { task = "x" }\nallow = { webhook_hosts = ["x.example"] }'),
            "allow.webhook_hosts: webhooks belong to accounts",
        ),
        (rule("max_tokens = 0"), "line 3: rule one, max_tokens: must be a whole number of tokens from 1, not 0"),
        (rule('window = "soon"'), 'window: must be a length of time like "30m"'),
        (rule('priority = "urgent"'), "priority: must be high, normal, low, not 'urgent'"),
        (rule("deny = true\nshare = 101"), "share: must be a percentage from 0.01 to 100, like 10, not 101"),
        (rule("observe = 1"), "observe: must be true or false"),
        (rule('when = { task = "x" }'), "rule one, id: does nothing; give it one of route"),
        (rule("deny = true\nmax_tokens = 5"), "max_tokens: has no effect beside deny; remove one of them"),
    ],
)
def test_an_error_is_named_with_its_line_its_rule_and_field_and_what_would_be_right(text: str, named: str) -> None:
    assert any(named in problem for problem in problems(text)), problems(text)


def test_all_errors_are_reported_at_once() -> None:
    found = problems(rule('route = "a"\nfallback = ["b"]') + '[[rule]]\nid = "two"\nshare = 0\n')
    assert [problem.partition(": no such")[0].partition(": must")[0] for problem in found] == [
        "line 3: rule one, route",
        "line 4: rule one, fallback",
        "line 7: rule two, share",
    ]


def test_a_process_that_does_not_know_a_model_yet_can_read_the_policy_all_the_same() -> None:
    [found] = parse(rule('route = "new"'), MODELS, lenient=True)
    assert found.route == ("new",)


@given(st.text(alphabet='[]{}="\n# abridtouelws0159<>,.', max_size=200))
def test_whatever_is_written_it_is_read_or_refused_with_a_line(text: str) -> None:
    found: tuple[Problem, ...] = ()
    try:
        parse(text, MODELS)
    except PolicyError as error:
        found = error.problems
    assert all(1 <= problem.line <= text.count("\n") + 1 for problem in found)


def test_the_policy_of_the_documentation_is_one() -> None:
    page = (Path(__file__).parents[2] / "docs" / "governance.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    policies = [block for block in blocks if "[[rule]]" in block]  # others are of the catalogue
    assert policies
    for policy in policies:
        parse(policy, MODELS)
