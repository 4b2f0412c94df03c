"""What an item of a pipeline comes from, and what a stage makes of it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.flows.answers import Answer
from app.flows.problems import ItemError


@dataclass(frozen=True, slots=True)
class Lineage:
    """What one item comes from. `line`: its line of the input; None: it has no single one. `answers`: by stage, those of which it
    has one, its parent's included. `requests`: by stage, what its ancestors have asked, as far as an Again needs it. `values`:
    of the placeholders in all of them, which templates and conditions do not read.
    """

    line: Mapping[str, Any] | None = None
    answers: Mapping[int, Answer] = field(default_factory=dict)
    requests: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for an engine. `body` is without its model."""

    endpoint: str
    model: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parked:
    """An item that waits for an answer from outside for `timeout` seconds."""

    body: Mapping[str, Any]
    timeout: float


@dataclass(frozen=True, slots=True)
class Copied:
    """A result without a request: the parent's, or the picked choice."""

    ok: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """An item that is an error from the beginning."""

    error: ItemError


Child = Asked | Parked | Copied | Refused
