"""Policy: rules, versions and the report of a dry run to words. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.access.roles import Viewer
from app.console.views import text, times
from app.console.views.batch_actions import Action
from app.policy.replay import Report
from app.policy.rules import Bound, Only, Rule, When
from app.policy.service import PolicyVersion

_BOUNDS = {"est_tokens": "{} tokens", "deadline": "a window {} s", "budget": "budget {} %"}
_SIGNS = {"<=": "at most", ">=": "at least", "<": "below", ">": "above", "=": "exactly"}
_MOST_DENIALS = 5
PATH = "/console/policy"
SHOWN = 50


@dataclass(frozen=True, slots=True)
class Seen:
    """What the page has read. `newest`: the version in force, with its rules. `versions`: one more than are shown if there are
    more, newest first.
    """

    newest: PolicyVersion | None
    rules: Sequence[Rule]
    versions: Sequence[PolicyVersion]


@dataclass(frozen=True, slots=True)
class Trial:
    """A text that somebody tries: its problems, or what it would have done in the last week and would do to open batches."""

    text: str
    recent: Report | None = None
    waiting: Report | None = None
    problems: tuple[str, ...] = ()


def view(seen: Seen, viewer: Viewer, params: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """What the template of the page needs."""
    newest, shown = seen.newest, seen.versions[:SHOWN]
    title = (
        text.sentence(f"{text.plural(len(seen.rules), 'rule')} in force") if newest else "No policy was ever applied"
    )
    rest = "Every request is taken as it is sent."
    if newest:
        watching = sum(rule.observe for rule in seen.rules)
        rest = (
            f"Version {newest.policy_id}, applied by {newest.by} {times.span((now - newest.at).total_seconds())} ago."
        )
        rest += f" {text.sentence(text.plural(watching, 'rule'))} only count what they match." if watching else ""
    return {
        "title": title,
        "rest": rest,
        "rules": [_rule(rule) for rule in seen.rules],
        "versions": [_version(each, newest, viewer, now) for each in shown],
        "pages": {
            "names": (),
            "words": f"{text.plural(len(shown), 'version')}, newest first",
            "cli": "",
            "newer": f"{PATH}#h-versions" if "before" in params else "",
            "older": f"{PATH}?before={shown[-1].policy_id}#h-versions" if len(seen.versions) > SHOWN else "",
        },
        "draft": newest.text if newest else EXAMPLE,
        "trial": None,
    }


def trial_view(trial: Trial, viewer: Viewer) -> dict[str, Any]:
    """What the template needs besides, after a dry run."""
    apply = Action(
        "apply",
        "Apply",
        "/console/policy/apply",
        "Put this policy in force?",
        "Every process follows it within a second. What is queued already keeps its model; what comes is decided by these rules.",
        confirm="Apply the policy",
        cli="slackwater policy apply policy.toml",
        fields=(("text", trial.text),),
        primary=True,
    )
    reports = [("The last seven days", trial.recent), ("Open batches", trial.waiting)]
    found = {
        "problems": trial.problems,
        "reports": [_report(name, report) for name, report in reports if report is not None],
        "apply": apply if viewer.role.acts and not trial.problems else None,
    }
    return {"draft": trial.text, "trial": found}


EXAMPLE = """[[rule]]
id = "no-drafts"
when = { workflow = "draft", critical = false }
deny = "Drafts are answered at night"
observe = true # only count what it matches
"""


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.rule_id,
        "when": when(rule.when) or "every request",
        "then": "; ".join(actions(rule)) or "nothing",
        "share": "" if rule.share >= 100 else f"{rule.share:g}{text.NBSP}% of them",
        "observe": rule.observe,
        "contact": rule.contact or "",
    }


def when(conditions: When) -> str:
    """The conditions in words: workflow digest or report, not critical, at most 4,000 tokens."""
    words = [f"{name.replace('_', ' ')} {' or '.join(sorted(values))}" for name, values in conditions.texts.items()]
    if conditions.critical is not None:
        words.append("critical" if conditions.critical else "not critical")
    words += [_BOUNDS[name].format(_bound(bound)) for name, bound in conditions.bounds.items()]
    return ", ".join(words)


def _bound(bound: Bound) -> str:
    return f"{_SIGNS[bound.sign]} {bound.value:,.15g}"


def actions(rule: Rule) -> list[str]:
    """What a rule does, in words."""
    words = []
    if rule.refuse:
        words.append(f"refuse: {rule.refuse}")
    if rule.route:
        words.append(f"answer by {', else '.join(rule.route)}")
    if rule.fallback:
        words.append(f"fall back to {', then '.join(rule.fallback)}")
    words += _only("allow only", rule.allow) + _only("deny", rule.deny)
    if rule.max_tokens is not None:
        words.append(f"answers of at most {rule.max_tokens:,} tokens")
    if rule.window is not None:
        words.append(f"done within {times.span(rule.window)}")
    if rule.priority is not None:
        words.append(f"{rule.priority} priority")
    return words


def _only(verb: str, only: Only) -> list[str]:
    named = {
        "models": only.models,
        "tools": only.tools,
        "webhook hosts": only.webhook_hosts,
        "media hosts": only.media_hosts,
        "tool hosts": only.tool_hosts,
    }
    return [f"{verb} {name} {', '.join(sorted(values))}" for name, values in named.items() if values is not None]


def _version(each: PolicyVersion, newest: PolicyVersion | None, viewer: Viewer, now: datetime) -> dict[str, Any]:
    action = Action(
        f"back-{each.policy_id}",
        "Roll back",
        f"/console/policy/versions/{each.policy_id}/rollback",
        f"Put version {each.policy_id} in force again?",
        "It becomes a new version. Every process follows it within a second.",
        confirm="Roll back",
        cli=f"slackwater policy rollback {each.policy_id}",
        danger=True,
    )
    current = newest is not None and each.policy_id == newest.policy_id
    return {
        "number": each.policy_id,
        "digest": each.digest[:12],
        "by": each.by,
        "at": each.at,
        "ago": times.span((now - each.at).total_seconds()),
        "current": current,
        "text": each.text,
        "action": action if viewer.role.acts and not current else None,
    }


def _report(name: str, report: Report) -> dict[str, Any]:
    costs = []
    for currency in sorted({*report.before, *report.after}):
        before, after = float(report.before.get(currency, 0)), float(report.after.get(currency, 0))
        costs.append(f"{text.money(before, currency)} would have been {text.money(after, currency)}")
    denied = f"{text.count(report.denied)} of {text.plural(report.requests, 'request')} would be denied"
    return {
        "name": name,
        "words": ". ".join([denied, *costs]) + ".",
        "rules": [
            (rule, *(text.count(n) for n in (effect.matched, effect.denied, effect.rerouted, effect.observed)))
            for rule, effect in report.effects.items()
        ],
        "moved": [f"{text.plural(n, 'request')} from {a} to {b}" for (a, b), n in report.moved.most_common()],
        "denials": [
            f"{text.plural(n, 'request')}: {message}" for message, n in report.denials.most_common(_MOST_DENIALS)
        ],
    }
