"""What a policy consists of: rules with conditions and actions. Pure."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from app.detection.detectors import BUILT_IN_KINDS

Priority = Literal["high", "normal", "low"]
Compare = Callable[[float, float], bool]

OPERATORS: Mapping[str, Compare] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
# Conditions on who sends a request are the same for all items of a batch.
OF_REQUEST = ("account", "key", "workflow", "task", "kind")
OF_ITEM = ("model", "endpoint", "end_user")
TEXTS = (*OF_REQUEST, *OF_ITEM)
KINDS = ("sync", "batch", "response", "flex", "stage", "checkpoint")
_WIDER = {"stage": "batch"}  # a rule that names the second kind holds for the first, too
BOUNDS = ("est_tokens", "deadline", "budget")


def is_of(kind: str, named: frozenset[str]) -> bool:
    """Whether a request of this kind is of the kinds that a rule names."""
    return kind in named or _WIDER.get(kind) in named


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison such as `<=4000`. Tokens, seconds or per cent."""

    sign: str
    value: float

    def holds(self, number: float) -> bool:
        """Whether the number meets it."""
        return OPERATORS[self.sign](number, self.value)


@dataclass(frozen=True, slots=True)
class When:
    """The conditions of a rule, which must all hold. `texts`: by name of TEXTS, the values of which one must be there.

    `budget`: per cent that is spent of the fullest budget that limits the request. `deadline`: seconds of a completion window; a
    request without one does not meet it.
    """

    texts: Mapping[str, frozenset[str]]
    bounds: Mapping[str, Bound]
    critical: bool | None = None


@dataclass(frozen=True, slots=True)
class Only:
    """Names that are allowed, or denied. None: nothing is said. Hosts: see `app.host_lists`."""

    models: frozenset[str] | None = None
    tools: frozenset[str] | None = None
    webhook_hosts: tuple[str, ...] | None = None
    media_hosts: tuple[str, ...] | None = None
    tool_hosts: tuple[str, ...] | None = None


NOTHING_SAID = Only()
Mode = Literal["off", "report", "tokenize", "remove", "refuse"]


@dataclass(frozen=True, slots=True)
class Sensitive:
    """What happens to sensitive values, by kind. `usual`: to kinds that `modes` does not name. `patterns`: the account's own
    kinds, in RE2's syntax.
    """

    usual: Mode
    modes: Mapping[str, Mode]
    patterns: Mapping[str, str]

    def active(self) -> dict[str, Mode]:
        """The mode of each kind that is looked for."""
        kinds = (*BUILT_IN_KINDS, *self.patterns)
        return {kind: mode for kind in kinds if (mode := self.modes.get(kind, self.usual)) != "off"}


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. None: it does not set that action.

    `route`: the models of which the first that the request fits answers. `fallback`: models for a request that its own model
    cannot take. `share`: per cent of the requests. `refuse`: the sentence of a denial. `max_tokens`: the limit of an answer.
    `window`: seconds, for queued work without a completion window. `sensitive`: what happens to sensitive values of an account.
    `observe`: matches are only counted. `encrypt`: what may match it is stored encrypted.
    """

    rule_id: str
    when: When
    route: tuple[str, ...] | None = None
    fallback: tuple[str, ...] | None = None
    share: float = 100.0
    refuse: str | None = None
    allow: Only = NOTHING_SAID
    deny: Only = NOTHING_SAID
    max_tokens: int | None = None
    window: float | None = None
    priority: Priority | None = None
    sensitive: Sensitive | None = None
    observe: bool = False
    contact: str | None = None
    encrypt: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of one version, in their order. Number 0: there is none."""

    policy_id: int
    rules: tuple[Rule, ...]


NO_POLICY = Policy(0, ())
