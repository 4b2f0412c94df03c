"""Claims about the one function that every request passes, without a server; and how long it takes."""

import re
import time
from dataclasses import replace
from typing import Any

import pytest

from app.admission.admission import Admission, no_admission
from app.admission.control import AdmissionControl
from app.admission.redaction import redaction_of
from app.admission.spent_shares import KeptShares
from app.admission.tool_output import HEAD_TEXT
from app.batches.submit import rules_of
from app.batches.validation import text_generation
from app.batches.validation.text_generation import ItemError, ItemFacts
from app.engines import catalogue
from app.engines.catalogue import Model
from app.engines.requests import CHAT, COMPLETIONS, RESPONSES
from app.errors import ModelDenied, PolicyDenied
from app.metering.spend_labels import SpendLabels
from app.policy.language import parse
from app.policy.match import Requester, narrowed
from app.policy.rules import Policy
from app.policy.vaults import Vaults
from app.settings import DEMO_MODELS
from app.tenants.service import Tenant
from tests.timing import note

MODELS = catalogue.load(DEMO_MODELS)
SMALL = MODELS.models["smollm2-135m-instruct"]
KIMI = MODELS.models["@cf/moonshotai/kimi-k2.6"]
OSS = MODELS.models["@cf/openai/gpt-oss-20b"]
WHO = Requester("acme", "k1", "search", "extract", "sync", critical=True)
HELLO = {"model": KIMI.name, "messages": [{"role": "user", "content": "hello"}]}


def admission(text: str) -> Admission:
    return replace(no_admission(), who=WHO, policy=Policy(7, narrowed(parse(text, MODELS), WHO)), models=MODELS)


def examine(model: Model, item: dict[str, Any]) -> ItemFacts:
    return text_generation.examine(item, rules_of(model, lambda model: 100, stream=True))


def test_a_request_goes_to_the_first_model_of_its_route_that_it_fits() -> None:
    opened = admission(f'[[rule]]\nid = "r"\nroute = ["{SMALL.name}", "{OSS.name}"]\n')
    admitted = opened.admit(KIMI, HELLO, CHAT, examine)
    assert (admitted.model, admitted.item["model"]) == (SMALL, SMALL.name)
    assert HELLO["model"] == KIMI.name  # the caller's own body stays
    assert opened.stored([SMALL.name]) == {"id": 7, "rules": ["r"], "fallback": [], "asked": KIMI.name}


def test_a_request_that_fits_no_model_of_the_route_keeps_its_own() -> None:
    """gpt-oss here takes one choice only in its own form; nothing else fits either."""
    two = HELLO | {"n": 2}

    def only_kimi(model: Model, item: dict[str, Any]) -> ItemFacts:
        if model is not KIMI:
            raise ItemError("n", "takes one choice")
        return examine(model, item)

    admitted = admission(f'[[rule]]\nid = "r"\nroute = "{SMALL.name}"\n').admit(KIMI, two, CHAT, only_kimi)
    assert (admitted.model, admitted.item) == (KIMI, two)


def test_a_model_that_is_not_allowed_is_refused_unless_a_route_leads_away_from_it() -> None:
    allow = f'[[rule]]\nid = "small"\nallow = {{ models = ["{SMALL.name}"] }}\n'
    with pytest.raises(ModelDenied, match="Policy rule small allows smollm2-135m-instruct, not @cf"):
        admission(allow).admit(KIMI, HELLO, CHAT, examine)
    admitted = admission(f'[[rule]]\nid = "r"\nroute = "{SMALL.name}"\n{allow}').admit(KIMI, HELLO, CHAT, examine)
    assert admitted.model is SMALL


def test_a_route_to_a_model_that_another_rule_denies_is_not_taken() -> None:
    text = f'[[rule]]\nid = "r"\nroute = "{SMALL.name}"\n[[rule]]\nid = "d"\ndeny = {{ models = ["{SMALL.name}"] }}\n'
    assert admission(text).admit(KIMI, HELLO, CHAT, examine).model is KIMI


@pytest.mark.parametrize(
    ("endpoint", "given", "limited"),
    [
        (CHAT, {}, {"max_tokens": 50}),
        (CHAT, {"max_tokens": 20}, {"max_tokens": 20}),
        (CHAT, {"max_completion_tokens": 500}, {"max_completion_tokens": 50}),
        (COMPLETIONS, {"max_tokens": 500}, {"max_tokens": 50}),
    ],
)
def test_an_answer_is_limited_only_where_it_could_be_longer(
    endpoint: str, given: dict[str, int], limited: dict[str, int]
) -> None:
    admitted = admission('[[rule]]\nid = "short"\nmax_tokens = 50\n').admit(KIMI, HELLO | given, endpoint, examine)
    assert admitted.item == HELLO | given | limited
    assert admitted.facts.most_tokens <= 50


def test_the_limit_of_a_response_is_in_the_field_of_its_route() -> None:
    from app.admission.answer_limit import limited

    assert limited({"input": "x"}, RESPONSES, 9) == {"input": "x", "max_output_tokens": 9}
    assert limited({"input": "x"}, CHAT, 9) == {
        "input": "x",
        "max_output_tokens": 9,
    }  # in the form of the Responses API
    assert limited({"input": "x"}, "/v1/embeddings", 9) == {"input": "x"}


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [{"type": "function", "function": {"name": "shell"}}]},
        {"tools": [{"type": "function", "name": "shell"}]},
        {"functions": [{"name": "shell"}]},
        {"tools": [{"type": "shell"}]},
        {"tools": [{"name": {"of": "another kind"}}, 3, {"type": "shell"}], "functions": "none"},
    ],
)
def test_a_denied_tool_is_found_in_every_form_of_a_request(tools: dict[str, Any]) -> None:
    with pytest.raises(PolicyDenied, match="does not allow the tool shell"):
        admission('[[rule]]\nid = "t"\ndeny = { tools = ["shell"] }\n').admit(
            KIMI, HELLO | tools, CHAT, lambda model, item: examine(model, HELLO)
        )


def test_the_others_are_the_models_of_the_fallback_chain_that_may_answer() -> None:
    text = f"""
[[rule]]
id = "chain"
fallback = ["{KIMI.name}", "{OSS.name}", "{SMALL.name}"]
deny = {{ models = ["{OSS.name}"] }}
"""
    opened = admission(text)
    admitted = opened.admit(KIMI, HELLO, CHAT, examine)
    assert [other.model for other in opened.others(admitted, examine)] == [SMALL]


def test_an_error_of_the_request_itself_comes_before_every_rule() -> None:
    with pytest.raises(ItemError):
        admission('[[rule]]\nid = "no"\ndeny = true\n').admit(KIMI, HELLO | {"messages": []}, CHAT, examine)


def test_admission_with_fifty_rules_takes_microseconds() -> None:
    """Printed, not asserted."""
    far = "".join(f'[[rule]]\nid = "w{n}"\nwhen = {{ workflow = "w{n}" }}\nmax_tokens = 5\n' for n in range(25))
    near = "".join(
        f'[[rule]]\nid = "n{n}"\nwhen = {{ est_tokens = ">=900{n:02}", critical = true }}\nmax_tokens = 5\n'
        for n in range(25)
    )
    facts = examine(KIMI, HELLO)
    control = AdmissionControl(None, None, b"secret", KeptShares(lambda *_: 0.0))  # type: ignore[arg-type]  # nothing is read or stored
    control.policy.current = Policy(7, parse(far + near, MODELS))
    tenant, labels, times = Tenant(1, "acme", "k1"), SpendLabels("search", "extract"), []
    for _ in range(2000):
        begun = time.perf_counter()
        control.begin(tenant, labels, "sync", MODELS, stored=()).admit(KIMI, HELLO, CHAT, lambda model, item: facts)
        times.append(time.perf_counter() - begun)
    note(f"admission of a request under 50 rules, p50: {sorted(times)[len(times) // 2] * 1e6:.0f} µs")


def test_an_image_of_a_host_that_the_policy_does_not_list_is_refused_although_the_model_lists_it() -> None:
    sees = replace(KIMI, capabilities=KIMI.capabilities | {"vision"}, media_hosts=("img.example", "other.example"))
    opened = admission('[[rule]]\nid = "media"\nallow = { media_hosts = ["img.example"] }\ncontact = "ops@x.example"\n')

    def asking(host: str) -> dict[str, Any]:
        part = {"type": "image_url", "image_url": {"url": f"https://{host}/a.png"}}
        return HELLO | {"messages": [{"role": "user", "content": [part]}]}

    assert opened.admit(sees, asking("img.example"), CHAT, examine).model is sees
    with pytest.raises(
        PolicyDenied, match=r"Policy rule media does not allow media of other.example. Ask ops@x.example."
    ):
        opened.admit(sees, asking("other.example"), CHAT, examine)
    with pytest.raises(ItemError, match=r"an https URL of img.example or other.example"):
        opened.admit(sees, asking("third.example"), CHAT, examine)


def test_a_batch_keeps_each_of_the_different_terms_of_tools_that_its_items_have() -> None:
    opened = admission('[[rule]]\nid = "d"\nwhen = { end_user = "guest" }\ndeny = { tools = ["shell"] }\n')
    for item in (HELLO, HELLO | {"user": "guest"}, HELLO | {"user": "other"}):
        opened.admit(KIMI, item, CHAT, examine)
    kept = opened.stored([KIMI.name])
    assert kept is not None
    assert kept["tools"] == [{}, {"deny": {"rule": "d", "tools": ["shell"]}}]


def redacting(text: str) -> Admission:
    """The admission of an account whose values are replaced by placeholders."""
    rule = '[[rule]]\nid = "hide"\nsensitive = "tokenize"\n'
    rules = parse(text + rule, MODELS)
    redaction = redaction_of(rules[-1], Vaults(b"s" * 32, 1), b"", id)
    return replace(no_admission(), who=WHO, policy=Policy(7, narrowed(rules, WHO)), models=MODELS, redaction=redaction)


def test_a_rule_about_an_end_user_sees_the_user_that_the_caller_named() -> None:
    rule = f'[[rule]]\nid = "one"\nwhen = {{ end_user = "eve@example.com" }}\ndeny = {{ models = ["{KIMI.name}"] }}\n'
    with pytest.raises((PolicyDenied, ModelDenied), match="one"):
        redacting(rule).admit(KIMI, HELLO | {"user": "eve@example.com"}, CHAT, examine)
    others = redacting(rule).admit(KIMI, HELLO | {"user": "adam@example.com"}, CHAT, examine)
    assert others.item["user"] == "[EMAIL_1]"
    again = HELLO | {"user": "[EMAIL_1]"}  # of an item of a pipeline, which has its placeholders from before
    with pytest.raises((PolicyDenied, ModelDenied), match="one"):
        redacting(rule).admit(KIMI, again, CHAT, examine, {"[EMAIL_1]": "eve@example.com"})


def test_the_output_of_a_tool_is_shortened_after_redaction_and_no_placeholder_is_cut() -> None:
    for before in range(HEAD_TEXT - 30, HEAD_TEXT):
        output = "x " * (before // 2) + "x" * (before % 2) + " eve@example.com " + "y " * 10_000
        messages = [HELLO["messages"][0], {"role": "tool", "tool_call_id": "c", "content": output}]
        item = {"model": KIMI.name, "messages": messages, "normalize_tool_output": True}
        shown = redacting("").admit(KIMI, item, CHAT, examine).item["messages"][1]["content"]
        assert len(shown) < 10_000
        assert "eve" not in shown
        assert re.fullmatch(
            r"[x ]+(\[EMAIL_1\] ?)?[y ]*\[slackwater: [\d,]+ of [\d,]+ characters left out\][y ]+", shown
        )
