"""Tries a policy on recorded requests: what it would match and refuse, and what that would change in the cost.

Their content is not recorded. So conditions on the end user and rules about tools match nothing here, and budgets count as
unused. A request fits a model of the task of its own that has the window for it and, if the request was queued, can be queued;
whether it has images is not known.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from app.engines.catalogue import Catalogue, Model
from app.policy.match import Asked, Decision, Requester, decide, narrowed
from app.policy.rules import KINDS, Rule
from app.policy.samples import Sample

_QUEUED_KINDS = frozenset(KINDS) - {"sync"}
_MILLION = Decimal(10**6)


@dataclass(slots=True)
class Effect:
    """What one rule would have done. Requests."""

    matched: int = 0
    denied: int = 0
    rerouted: int = 0
    observed: int = 0


@dataclass(slots=True)
class Report:
    """What a policy would have done. `effects`: by rule. `moved`: requests by (asked, answering) model. `denials`: by message.

    `before`, `after`: the cost by currency, of requests whose model has a price; `after` is without those that are denied.
    """

    requests: int = 0
    denied: int = 0
    effects: dict[str, Effect] = field(default_factory=dict)
    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    denials: Counter[str] = field(default_factory=Counter)
    before: dict[str, Decimal] = field(default_factory=dict)
    after: dict[str, Decimal] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The report as JSON."""
        currencies = sorted({*self.before, *self.after})
        zero = Decimal()
        return {
            "requests": self.requests,
            "denied": self.denied,
            "rules": [{"rule": rule, **asdict(effect)} for rule, effect in self.effects.items()],
            "moved": [{"from": a, "to": b, "requests": n} for (a, b), n in self.moved.most_common()],
            "denials": [{"message": message, "requests": n} for message, n in self.denials.most_common()],
            "cost": [
                {
                    "currency": name,
                    "before": float(self.before.get(name, zero)),
                    "after": float(self.after.get(name, zero)),
                }
                for name in currencies
            ],
        }


def replay(rules: Sequence[Rule], found: Iterable[tuple[str, Sample]], models: Catalogue) -> Report:
    """Try these rules on samples, each with its account."""
    report = Report(effects={rule.rule_id: Effect() for rule in rules})
    for number, (account, sample) in enumerate(found):
        who = Requester(
            account, sample.key_id, sample.workflow, sample.task, sample.kind, sample.critical, sample.deadline
        )
        asked = Asked(sample.model, sample.endpoint, sample.est_tokens, seed=partial(b"%d".__mod__, number))
        _count(report, sample, decide(narrowed(rules, who), asked), models)
    return report


def _count(report: Report, sample: Sample, decision: Decision, models: Catalogue) -> None:
    requests, model = sample.requests, models.resolve(sample.model)
    report.requests += requests
    _add(report.before, model, sample, None)
    answering = _answering(model, sample, decision, models)
    denial = decision.denial or decision.refusal(answering.name if answering else sample.model)
    for rule in decision.rules:
        report.effects[rule].matched += requests
    for rule in decision.observed:
        report.effects[rule].observed += requests
    if denial is not None:
        report.denied += requests
        report.denials[denial.message] += requests
        report.effects[denial.rule_id].denied += requests
        return
    if answering is not None and answering is not model:
        report.moved[sample.model, answering.name] += requests
        for rule in decision.rules:
            report.effects[rule].rerouted += requests
    _add(report.after, answering, sample, decision.max_tokens)


def _answering(model: Model | None, sample: Sample, decision: Decision, models: Catalogue) -> Model | None:
    for name in decision.route:
        found = models.resolve(name)
        if found is None or decision.refusal(name) is not None:
            continue
        may = model is None or found.may_replace(model, queued=sample.kind in _QUEUED_KINDS)
        if may and sample.est_tokens <= found.context_window:
            return found
    return model


def _add(sums: dict[str, Decimal], model: Model | None, sample: Sample, most: int | None) -> None:
    if model is None or model.price is None:
        return
    answer = sample.answer_tokens if most is None else min(sample.answer_tokens, most)
    prompt = sample.est_tokens - sample.answer_tokens
    cost = (prompt * model.price.input + answer * model.price.output) * sample.requests / _MILLION
    sums[model.price.currency] = sums.get(model.price.currency, Decimal()) + cost
