"""Decides by a policy's rules what happens to a request. Pure.

Rules are tried in order. The first rule to set an action wins it; a denial ends the search.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app import host_lists
from app.policy.denials import Denial, denial
from app.policy.rules import OF_ITEM, OF_REQUEST, Priority, Rule, Sensitive, is_of
from app.policy.tool_terms import NO_TERMS, ToolList, ToolTerms

_ACTIONS = ("route", "fallback", "max_tokens", "window", "priority", "sensitive")
_NAMES_IN_ITEMS = ("tools", "media_hosts", "tool_hosts")
_NAMES = ("models", *_NAMES_IN_ITEMS)
_BOUNDS_OF_ITEM = ("est_tokens", "budget")

Used = Callable[[], float]  # per cent that is spent of the fullest budget that limits the request


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sends a request, and how. `kind`: of `KINDS`. `deadline`: seconds; None: it has none."""

    account: str
    key: str
    workflow: str
    task: str
    kind: str
    critical: bool
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request asks for. `tools`: the names of the tools that it offers. `seed`: what its share is drawn by. `media`: the
    hosts from which its engine is to fetch media.
    """

    model: str
    endpoint: str
    est_tokens: int
    end_user: str | None = None
    tools: frozenset[str] = frozenset()
    seed: Callable[[], bytes] = bytes
    media: Callable[[], frozenset[str]] = frozenset


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules say about a request. `rules`: those that set something, in order. `observed`: those that only watch.

    `allowed`, `denied`: the models that may answer and those that may not, with the rules that say so. `tools`: the tools that it
    may offer, and its answer call.
    """

    rules: tuple[str, ...] = ()
    route: tuple[str, ...] = ()
    fallback: tuple[str, ...] = ()
    max_tokens: int | None = None
    window: float | None = None
    priority: Priority | None = None
    sensitive: Sensitive | None = None
    denial: Denial | None = None
    allowed: tuple[Rule, frozenset[str]] | None = None
    denied: tuple[Rule, frozenset[str]] | None = None
    observed: tuple[str, ...] = ()
    tools: ToolTerms = NO_TERMS

    def refusal(self, model: str) -> Denial | None:
        """Why this model may not answer. None: it may."""
        if self.allowed is not None and model not in self.allowed[1]:
            rule, names = self.allowed
            what = f"allows {', '.join(sorted(names)) or 'no model'}, not {model}"
        elif self.denied is not None and model in self.denied[1]:
            rule, what = self.denied[0], f"does not allow {model}"
        else:
            return None
        return denial(rule, what, of_model=True)


NO_DECISION = Decision()
_ANYTHING = Asked("", "", 0)


def narrowed(rules: Sequence[Rule], who: Requester) -> tuple[Rule, ...]:
    """The rules that can match a request of this requester."""
    return tuple(rule for rule in rules if _is_from(rule, who))


def decide(rules: Sequence[Rule], asked: Asked, used: Used = lambda: 0.0) -> Decision:
    """What these rules, narrowed to the requester, say about a request."""
    taken: dict[str, Any] = {}
    named: list[str] = []
    observed: list[str] = []
    for rule in rules:
        if not _matches(rule, asked, used):
            continue
        if rule.observe:
            observed.append(rule.rule_id)
            continue
        if _take(rule, taken):
            named.append(rule.rule_id)
        if rule.refuse is not None:
            taken["denial"] = denial(rule, rule.refuse)
            break
    found = {name: value for name, value in taken.items() if name in ("denial", *_ACTIONS)}
    tools = _tool_terms(taken)
    found.setdefault("denial", tools.of_request(asked.tools) or _of_media(asked, taken.get("allow media_hosts")))
    allowed, denied = taken.get("allow models"), taken.get("deny models")
    return Decision(tuple(named), **found, allowed=allowed, denied=denied, observed=tuple(observed), tools=tools)


def common(rules: Sequence[Rule]) -> Decision | None:
    """What these rules, narrowed to the requester, say about all of its requests. None: it depends on what one asks for."""
    if not rules:
        return NO_DECISION
    return None if any(map(_looks_at_items, rules)) else decide(rules, _ANYTHING)


def _looks_at_items(rule: Rule) -> bool:
    names = [getattr(only, name) for only in (rule.allow, rule.deny) for name in _NAMES_IN_ITEMS]
    when = rule.when
    return (
        rule.share < 100
        or any(name in when.texts for name in OF_ITEM)
        or any(name in when.bounds for name in _BOUNDS_OF_ITEM)
        or any(each is not None for each in names)
    )


def _is_from(rule: Rule, who: Requester) -> bool:
    when = rule.when
    if when.critical is not None and when.critical != who.critical:
        return False
    deadline = when.bounds.get("deadline")
    if deadline is not None and (who.deadline is None or not deadline.holds(who.deadline)):
        return False
    texts = when.texts
    if "kind" in texts and not is_of(who.kind, texts["kind"]):
        return False
    return all(getattr(who, name) in texts[name] for name in OF_REQUEST if name in texts and name != "kind")


def _matches(rule: Rule, asked: Asked, used: Used) -> bool:
    texts, bounds = rule.when.texts, rule.when.bounds
    for name in OF_ITEM if texts else ():
        if name in texts and getattr(asked, name) not in texts[name]:
            return False
    if bounds:
        tokens, budget = bounds.get("est_tokens"), bounds.get("budget")
        if tokens is not None and not tokens.holds(asked.est_tokens):
            return False
        if budget is not None and not budget.holds(used()):
            return False
    return rule.share >= 100 or _place(rule, asked) < rule.share


def _place(rule: Rule, asked: Asked) -> float:
    """Where a request falls, from 0 to 100: always the same for the same rule and the same content."""
    digest = hashlib.blake2b(rule.rule_id.encode() + b"\0" + asked.seed(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64 * 100


def _take(rule: Rule, taken: dict[str, Any]) -> bool:
    """Set the actions that no rule has set yet. Returns whether there was one."""
    before = len(taken)
    for name in _ACTIONS:
        if (value := getattr(rule, name)) is not None:
            taken.setdefault(name, value)
    if (
        rule.fallback is not None and "budget" in rule.when.bounds
    ):  # the money is short, so the first of them answers at once
        taken.setdefault("route", rule.fallback)
    for kind, only in (("allow", rule.allow), ("deny", rule.deny)):
        for name in _NAMES:
            if (names := getattr(only, name)) is not None:
                taken.setdefault(f"{kind} {name}", (rule, names))
    return len(taken) > before or rule.refuse is not None


def _tool_terms(taken: dict[str, Any]) -> ToolTerms:
    found = [_listed(taken.get(name)) for name in ("allow tools", "deny tools", "allow tool_hosts")]
    return ToolTerms(*found) if any(found) else NO_TERMS


def _of_media(asked: Asked, found: tuple[Rule, Collection[str]] | None) -> Denial | None:
    if found is None:
        return None
    rule, hosts = found
    others = sorted(host for host in asked.media() if not host_lists.lists(hosts, host))
    return denial(rule, f"does not allow media of {others[0]}") if others else None


def _listed(found: tuple[Rule, Collection[str]] | None) -> ToolList | None:
    return None if found is None else ToolList(found[0].rule_id, found[0].contact, frozenset(found[1]))


def sensitive_rule(rules: Sequence[Rule], account: str) -> Rule | None:
    """The rule about sensitive values of this account: the first of them. None: there is none."""
    for rule in rules:
        if rule.sensitive is not None and account in rule.when.texts.get("account", (account,)):
            return rule
    return None


def encrypts(rules: Sequence[Rule], account: str | None = None) -> str | None:
    """The first of these rules that asks for encryption. None: none does.

    Its conditions on items are not looked at: a batch is encrypted as a whole, before its items are known. `account`: the rules
    are not narrowed, and what is stored, a file, is of this account.
    """
    for rule in rules:
        of_account = account is None or account in rule.when.texts.get("account", (account,))
        if rule.encrypt and not rule.observe and of_account:
            return rule.rule_id
    return None


def webhook_refusal(rules: Sequence[Rule], account: str, url: str) -> Denial | None:
    """Why webhooks of this account may not go to a URL: the first rule about its hosts does not allow it. None: they may."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    for rule in rules:
        hosts = rule.allow.webhook_hosts
        if hosts is None or rule.observe or account not in rule.when.texts.get("account", (account,)):
            continue
        if host_lists.lists(hosts, host):
            return None
        return denial(rule, f"does not allow webhooks to {host}")
    return None
