"""Admits requests: every route, synchronous or queued, calls `Admission.admit` once for each request or item.

The order: labels (`begin`), scope of the key and policy (`admit`), then for queued work the account's quotas (`quotas.check`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import orjson

from app.admission import tool_output
from app.admission.answer_limit import limited
from app.admission.redaction import Redaction
from app.engines import media_urls
from app.engines.catalogue import Catalogue, Model
from app.errors import ModelDenied, PolicyDenied
from app.metering.spend_labels import NO_SPEND_LABELS, SpendLabels
from app.openai_codes import OpenAICode
from app.policy import tool_calls
from app.policy.denials import Denial
from app.policy.match import NO_DECISION, Asked, Decision, Requester, common, decide, encrypts
from app.policy.placeholders import restored_text
from app.policy.rules import NO_POLICY, Policy
from app.policy.tool_terms import NO_TERMS, ToolTerms
from app.policy.vaults import NO_VALUES, Vaults
from app.queue.types import Kind
from app.tenants.key_scope import EVERYTHING, KeyScope


class ItemFacts(Protocol):
    """What the check of a request found. Tokens are estimates; `most_tokens` limits the answer."""

    @property
    def est_tokens(self) -> int:
        """Prompt and answer together."""

    @property
    def answer_tokens(self) -> int:
        """Of these, the answer."""

    @property
    def most_tokens(self) -> int:
        """The most that the answer may have."""


_QUEUED_KINDS = frozenset(Kind)
_NOTED_WHOLE = (Kind.BATCH, Kind.STAGE)  # not item by item
_REFERENCE = "external_reference"
Facts = TypeVar("Facts", bound=ItemFacts)
Item = dict[str, Any]
Examine = Callable[[Model, Item], Facts]  # raises ValueError for a request that the model cannot take


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What is known of a request without its content. `items`: of a batch, else 1. Tokens: estimates for all of them."""

    who: Requester | None
    labels: SpendLabels
    model: str
    endpoint: str
    items: int
    est_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Admitted(Generic[Facts]):
    """A request as it may run: its model, its body and the facts about it. `values`: what its placeholders stand for."""

    model: Model
    item: Item
    facts: Facts
    decision: Decision = NO_DECISION
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)

    @property
    def changed(self) -> bool:
        """Whether a rule had a say."""
        return self.decision is not NO_DECISION


@dataclass(slots=True)
class Outcome:
    """What the policy said about the items of one request. `first`: about the first of them, which named the model `asked` and
    got `model`. `tools`: the different terms of tools that they have.
    """

    first: Decision | None = None
    asked: str | None = None
    model: str | None = None
    rules: dict[str, None] = field(default_factory=dict)  # in the order of their first use
    tools: dict[ToolTerms, None] = field(default_factory=dict)

    def add(self, decision: Decision, asked: str, model: str) -> None:
        """Add one item."""
        if self.first is None:
            self.first, self.asked, self.model = decision, asked, model
        if decision.rules:
            self.rules |= dict.fromkeys(decision.rules)
        self.tools[decision.tools] = None

    def clear(self) -> None:
        """Forget it: the request turned out to be an earlier one."""
        self.first = self.asked = self.model = None
        self.rules.clear()
        self.tools.clear()


def _ignored(*_: object) -> None:
    """What a call is for that nobody waits for."""


@dataclass(frozen=True, slots=True)
class Admission:
    """The admission of one HTTP request, whose labels and policy are fixed. `policy`: narrowed to the requester. `common`: what
    it says about every request; None: that depends on the request. `redaction`: of its account's requests; None: they stay as
    they are. `vaults`: of its account.

    `scope`: of the key. `used`: per cent of the fullest budget of a request whose price has this currency. `on_decision`,
    `on_request`, `on_denial`: called with each. `on_refusal`: called with the model or endpoint that the key may not ask for, and
    what its caller reads.
    """

    who: Requester | None
    labels: SpendLabels
    policy: Policy
    models: Catalogue | None
    scope: KeyScope
    used: Callable[[str | None], float]
    on_decision: Callable[[Decision], object]
    on_request: Callable[[RequestFacts], object]
    on_denial: Callable[[Denial], object]
    on_refusal: Callable[[str, str], object]
    redaction: Redaction | None
    vaults: Vaults | None
    outcome: Outcome = field(default_factory=Outcome)
    common: Decision | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "common", common(self.policy.rules))

    @property
    def open(self) -> bool:
        """Whether nothing can refuse or change a request, so that items need not be looked at."""
        return not self.policy.rules and not self.scope.limits_requests

    @property
    def encrypts(self) -> str | None:
        """The rule that asks for the encryption of what this request stores. None: none does."""
        return encrypts(self.policy.rules)

    @property
    def _is_queued(self) -> bool:
        return self.who is not None and self.who.kind in _QUEUED_KINDS

    def admit(
        self,
        model: Model,
        item: Item,
        endpoint: str,
        examine: Examine[Facts],
        values: Mapping[str, str] = NO_VALUES,
    ) -> Admitted[Facts]:
        """The request as it may run: another item, if it is redacted. `values`: of placeholders that it has from before.

        Raises PolicyDenied, ModelDenied, SensitiveFound, and the errors of `examine`.
        """
        if self.scope.limits_requests:
            self._check_scope(model, endpoint)
        end_user = _end_user(item, values)
        if self.redaction is not None:
            if isinstance(item, dict) and isinstance(reference := item.get(_REFERENCE), str):
                self.redaction.check(_REFERENCE, reference)
            # First, so that no error has what it hides, and no cut hides a value.
            redacted = self.redaction.redact(item, values)
            item, values = redacted.item, redacted.values
        admitted = self._admit(model, tool_output.shortened(item), endpoint, examine, end_user)
        return replace(admitted, values=values) if values else admitted

    def _admit(
        self, model: Model, item: Item, endpoint: str, examine: Examine[Facts], end_user: str | None
    ) -> Admitted[Facts]:
        facts = examine(model, item)
        if self.who is None or self.who.kind not in _NOTED_WHOLE:
            sums = facts.est_tokens, facts.answer_tokens
            self.on_request(RequestFacts(self.who, self.labels, model.name, endpoint, 1, *sums))
        if not self.policy.rules:
            return Admitted(model, item, facts)
        decision = self.common
        if decision is None:
            asked = _asked(model, item, endpoint, facts.est_tokens, end_user)
            currency = model.price.currency if model.price else None
            decision = decide(self.policy.rules, asked, partial(self.used, currency))
        self.on_decision(decision)
        if decision.denial is not None:
            self.on_denial(decision.denial)
            raise PolicyDenied(decision.denial.message)
        admitted = self._routed(model, item, facts, decision, examine)
        if (refusal := decision.refusal(admitted.model.name)) is not None:
            self.on_denial(refusal)
            raise ModelDenied(refusal.message)
        if decision.max_tokens is not None and facts.most_tokens > decision.max_tokens:
            shorter = limited(admitted.item, endpoint, decision.max_tokens)
            admitted = Admitted(admitted.model, shorter, examine(admitted.model, shorter), decision)
        self.outcome.add(decision, model.name, admitted.model.name)
        return admitted

    def _check_scope(self, model: Model, endpoint: str) -> None:
        """Raise ModelDenied or PolicyDenied for what the key may not ask for. What a policy makes of it is the operator's."""
        key = f"The API key {self.who.key}" if self.who else "The API key"
        if not self.scope.may_ask(model.name):
            allowed = ", ".join(sorted(self.scope.models or ())) or "no model"
            message = f"{key} is limited to {allowed}; it may not use {model.name}."
            self.on_refusal(model.name, message)
            raise ModelDenied(message)
        if not self.scope.may_use(endpoint):
            allowed = ", ".join(sorted(self.scope.endpoints or ())) or "no endpoint"
            message = f"{key} is limited to {allowed}; it may not use {endpoint}."
            self.on_refusal(endpoint, message)
            raise PolicyDenied(message, reason=OpenAICode.ENDPOINT_DENIED)

    def note_batch(self, model: str, endpoint: str, items: int, est_tokens: int, answer_tokens: int) -> None:
        """Note a batch that was stored, with its first item's model and the sums of its items."""
        asked = self.outcome.asked or model
        self.on_request(RequestFacts(self.who, self.labels, asked, endpoint, items, est_tokens, answer_tokens))

    def stored(self, models: Sequence[str]) -> dict[str, object] | None:
        """What a batch keeps about its admission. `models`: of its items, the first one's first. None: no rule had a say."""
        outcome = self.outcome
        if outcome.first is None or not outcome.rules:
            return None
        known: dict[str, object] = {
            "id": self.policy.policy_id,
            "rules": list(outcome.rules),
            "fallback": list(outcome.first.fallback),
        }
        known |= {"asked": outcome.asked} if outcome.asked != models[0] else {}
        if any(terms is not NO_TERMS for terms in outcome.tools):
            known["tools"] = [terms.as_json() for terms in outcome.tools]
        return known | ({"models": list(models)} if len(models) > 1 else {})

    def others(self, admitted: Admitted[Facts], examine: Examine[Facts]) -> list[Admitted[Facts]]:
        """The request for each model of its fallback chain that it fits and that may answer it."""
        found = []
        for name in admitted.decision.fallback:
            if name == admitted.model.name or admitted.decision.refusal(name) is not None:
                continue
            if (other := self._for(name, admitted.model, admitted.item, admitted.decision, examine)) is not None:
                found.append(other)
        return found

    def _routed(
        self, model: Model, item: Item, facts: Facts, decision: Decision, examine: Examine[Facts]
    ) -> Admitted[Facts]:
        """The request for the first model of its route that it fits; it keeps its own if there is none."""
        for name in decision.route:
            if name == model.name:
                break
            if (
                decision.refusal(name) is None
                and (found := self._for(name, model, item, decision, examine)) is not None
            ):
                return found
        return Admitted(model, item, facts, decision)

    def _for(
        self, name: str, asked: Model, item: Item, decision: Decision, examine: Examine[Facts]
    ) -> Admitted[Facts] | None:
        """The request for another model. None: that one cannot take it, or this process does not know it."""
        model = self.models.resolve(name) if self.models is not None else None
        if model is None or not model.may_replace(asked, queued=self._is_queued):
            return None
        other = {**item, "model": model.name} if "model" in item else item
        try:
            return Admitted(model, other, examine(model, other), decision)
        except ValueError:
            return None


def no_admission() -> Admission:
    """Of nobody's requests: nothing refuses or changes them, and nobody is told."""
    return Admission(
        who=None,
        labels=NO_SPEND_LABELS,
        policy=NO_POLICY,
        models=None,
        scope=EVERYTHING,
        used=lambda _: 0.0,
        on_decision=_ignored,
        on_request=_ignored,
        on_denial=_ignored,
        on_refusal=_ignored,
        redaction=None,
        vaults=None,
    )


def _end_user(item: Any, values: Mapping[str, str]) -> str | None:
    """The user that the caller named: a rule names no placeholder. `values`: of those that the item has already."""
    user = (item.get("safety_identifier") or item.get("user")) if isinstance(item, dict) else None
    return restored_text(user, values) if isinstance(user, str) else None


def _asked(model: Model, item: Item, endpoint: str, est_tokens: int, end_user: str | None) -> Asked:
    tools, media = tool_calls.offered(item), partial(media_urls.hosts_in, item)
    return Asked(model.name, endpoint, est_tokens, end_user, tools, lambda: orjson.dumps(item), media)
