"""Combinations of a rule's fields that do nothing or contradict each other. Pure."""

from collections.abc import Collection, Iterator

from app.engines.catalogue import Catalogue
from app.policy.rules import Rule

ACTIONS = ("route", "fallback", "allow", "deny", "max_tokens", "window", "priority", "sensitive", "encrypt")
Problems = Iterator[tuple[str, str]]  # field and message


def of(rule: Rule, given: Collection[str], models: Catalogue) -> Problems:
    """The problems of a rule whose fields are each valid. `given`: the names of its fields."""
    if not any(name in given for name in ACTIONS) and not rule.observe:
        yield "id", f"does nothing; give it one of {', '.join(ACTIONS)}, or observe = true"
    others = [name for name in ("route", "fallback", "max_tokens", "window", "priority") if name in given]
    if rule.refuse is not None and others:
        yield others[0], "has no effect beside deny; remove one of them"
    if rule.allow.webhook_hosts is not None and (set(rule.when.texts) | set(rule.when.bounds)) - {"account"}:
        yield "allow.webhook_hosts", "webhooks belong to accounts; account can be the only condition of this rule"
    if rule.window is not None and "deadline" in rule.when.bounds:
        yield "window", "is only for work without a completion window; remove the condition deadline"
    if rule.sensitive is not None:
        yield from _of_sensitive(rule)
    yield from _of_tasks(rule, models)


def _of_sensitive(rule: Rule) -> Problems:
    if (set(rule.when.texts) | set(rule.when.bounds)) - {"account"} or rule.when.critical is not None:
        yield "sensitive", "data belong to accounts; account can be the only condition of this rule"
    if rule.share < 100:
        yield "share", "must not stand beside sensitive: it holds for all requests or for none"
    if rule.observe:
        yield "observe", 'must not stand beside sensitive; write sensitive = "report", which only counts'


def _of_tasks(rule: Rule, models: Catalogue) -> Problems:
    """A model that generates text cannot answer in place of one that makes embeddings."""
    sources = {model.task for name in rule.when.texts.get("model", ()) if (model := models.resolve(name))}
    for field, chain in (("route", rule.route), ("fallback", rule.fallback)):
        tasks = {model.task for name in chain or () if (model := models.resolve(name))}
        if len(tasks | sources) > 1:
            yield field, f"its models and those of when.model do different things: {', '.join(sorted(tasks | sources))}"
