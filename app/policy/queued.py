"""Which other model a policy wants to answer work that waits in the queue, of which only the line is known. Pure.

What is not known of it (the length of its items, their end users, its deadline) could meet every condition: so no model answers
that a rule might forbid for a part of the work.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app.policy.rules import OF_REQUEST, Rule, is_of


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """Work of one line. None: that part is not known."""

    account: str
    key: str | None
    workflow: str | None
    task: str | None
    kind: str
    critical: bool
    model: str
    endpoint: str | None


def cheaper(rules: Sequence[Rule], work: QueuedWork, used: float) -> tuple[str, ...]:
    """The models to which waiting work moves, the first that fits: the fallback of the first rule with a condition on `budget`
    that surely matches all of the work. `used`: per cent of its fullest budget.
    """
    for rule in rules:
        bound = rule.when.bounds.get("budget")
        if bound is None or rule.fallback is None or rule.observe or not bound.holds(used):
            continue
        known = _known(work, work.model)
        sure = rule.share >= 100 and len(rule.when.bounds) == 1 and all(known.get(name) for name in rule.when.texts)
        if sure and _may_match(rule, work, work.model):
            return rule.fallback
    return ()


def lets(rules: Sequence[Rule], work: QueuedWork, model: str) -> bool:
    """Whether this model may answer all of the work. A rule that refuses requests for this model forbids it, too."""
    allow_is_open = deny_is_open = True
    routed = any(work.model in (*(rule.route or ()), *(rule.fallback or ())) for rule in rules)
    asked = None if routed else work.model
    for rule in rules:
        if rule.observe or not _may_match(rule, work, None):
            continue
        if rule.refuse is not None and model in rule.when.texts.get("model", ()):
            return False
        if not _may_match(rule, work, asked):
            continue
        surely, allowed, denied = _matches_all(rule, work, asked), rule.allow.models, rule.deny.models
        if allow_is_open and allowed is not None:
            if model not in allowed:
                return False
            allow_is_open = not surely
        if deny_is_open and denied is not None:
            if model in denied:
                return False
            deny_is_open = not surely
    return True


def _known(work: QueuedWork, asked: str | None) -> dict[str, str | None]:
    """What is known of the conditions on texts. `asked`: the model that was asked for."""
    known: dict[str, str | None] = {name: getattr(work, name) for name in (*OF_REQUEST, "endpoint")}
    return known | {"model": asked}


def _may_match(rule: Rule, work: QueuedWork, asked: str | None) -> bool:
    when, known = rule.when, _known(work, asked)
    if when.critical is not None and when.critical != work.critical:
        return False
    if not is_of(work.kind, when.texts.get("kind", frozenset((work.kind,)))):
        return False
    others = ((known.get(name), values) for name, values in when.texts.items() if name != "kind")
    return all(value is None or value in values for value, values in others)


def _matches_all(rule: Rule, work: QueuedWork, asked: str | None) -> bool:
    """Whether the rule, which may match, surely matches every part of the work."""
    known = _known(work, asked)
    return rule.share >= 100 and not rule.when.bounds and all(known.get(name) is not None for name in rule.when.texts)
