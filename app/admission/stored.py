"""A search of what is stored for the values that a rule would redact now: what was found, and where. Pure."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.policy.redaction import Redacted

_TOKENS = frozenset(("logprobs", "prompt_logprobs", "token_ids", "prompt_token_ids"))  # an answer once more, in pieces


@dataclass(slots=True)
class Found:
    """What one place has. `searched`: entries; `having`: those of them that have values; `redacted`: those that were written
    anew. `values`: by kind. `left`: how many were not searched, or stay with their values, by the reason.
    """

    searched: int = 0
    having: int = 0
    redacted: int = 0
    values: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Search:
    """The search of one account. `apply`: what is found is redacted. `on_entry`: called after each entry."""

    apply: bool
    on_entry: Callable[[], object]
    places: dict[str, Found] = field(default_factory=dict)

    def note(self, place: str, values: Counter[str], left: str | None = None) -> bool:
        """Note an entry and its values by kind. `left`: why it cannot be redacted. Returns whether it is to be redacted."""
        found = self.places.setdefault(place, Found())
        found.searched += 1
        self.on_entry()
        if not values:
            return False
        found.having += 1
        found.values.update(values)
        if left is not None:
            found.left[left] += 1
        return self.apply and left is None

    def unread(self, place: str, why: str) -> None:
        """Note an entry that could not be searched."""
        found = self.places.setdefault(place, Found())
        found.searched += 1
        found.left[why] += 1
        self.on_entry()

    def written(self, place: str, left: str | None = None) -> None:
        """Note that an entry was redacted, or why it was not."""
        found = self.places[place]
        if left is None:
            found.redacted += 1
        else:
            found.left[left] += 1


def kinds(redacted: Redacted) -> Counter[str]:
    """The values that were replaced, by kind."""
    return Counter({kind: count for (kind, mode), count in redacted.hits.items() if mode != "report"})


def without_tokens(answer: Any) -> Any:
    """An answer without its log probabilities and token ids, which would spell out what is redacted in its text."""
    if isinstance(answer, dict):
        return {name: None if name in _TOKENS else without_tokens(value) for name, value in answer.items()}
    return [without_tokens(each) for each in answer] if isinstance(answer, list) else answer
