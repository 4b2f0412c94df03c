"""Why a rule of the policy refuses something, as its caller reads it. Pure."""

from dataclasses import dataclass
from typing import Protocol


class NamedRule(Protocol):
    """What a denial tells of its rule."""

    @property
    def rule_id(self) -> str:
        """Its name in the policy."""

    @property
    def contact(self) -> str | None:
        """Whom to ask about it."""


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is refused, and by which rule. `of_model`: only its model is not allowed."""

    rule_id: str
    message: str
    of_model: bool = False


def denial(rule: NamedRule, what: str, *, of_model: bool = False) -> Denial:
    """The denial by a rule that does `what`, with whom to ask about it."""
    contact = f" Ask {rule.contact}." if rule.contact else ""
    return Denial(rule.rule_id, f"Policy rule {rule.rule_id} {what}.{contact}", of_model)
