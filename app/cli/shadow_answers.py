"""What two batch APIs have answered to the same requests, side by side. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from app.engines.native_response import answer_in
from app.engines.outcome import usage_of

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: its text, or why there is none."""

    text: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class PerMillion:
    """What a million tokens of prompts and of answers cost."""

    prompt: Decimal
    output: Decimal
    currency: str = "USD"


@dataclass(slots=True)
class Side:
    """One API: the batch, the answers by `custom_id`, and the tokens that were used."""

    name: str
    batch: Mapping[str, Any]
    answers: dict[str, Answer] = field(default_factory=dict)
    prompt_tokens: int = 0
    output_tokens: int = 0
    price: PerMillion | None = None

    def take(self, lines: Iterable[Mapping[str, Any]]) -> "Side":
        """Read lines of an output or error file."""
        for line in lines:
            self.answers[str(line.get("custom_id"))] = _answer(line)
            body = (line.get("response") or {}).get("body")
            if isinstance(body, dict) and (used := usage_of(body)):
                self.prompt_tokens += used.prompt_tokens
                self.output_tokens += used.completion_tokens
        return self

    @property
    def answered(self) -> int:
        """How many requests have an answer."""
        return sum(not answer.error for answer in self.answers.values())

    @property
    def seconds(self) -> int | None:
        """From the batch's creation to its end."""
        end = next((self.batch[name] for name in _ENDS if self.batch.get(name)), None)
        return None if end is None else int(end) - int(self.batch["created_at"])

    @property
    def cost(self) -> tuple[Decimal, str] | None:
        """By the price that was given, else what the API says, which only ours does."""
        if self.price:
            used = self.prompt_tokens * self.price.prompt + self.output_tokens * self.price.output
            return used / _MILLION, self.price.currency
        usage = self.batch.get("usage") or {}
        return (Decimal(str(usage["cost"])), str(usage["currency"])) if usage.get("cost") is not None else None


_ENDS = ("completed_at", "failed_at", "expired_at", "cancelled_at")
Pair = tuple[str, Answer | None, Answer | None]


def pairs(ids: Iterable[str], here: Side, there: Side) -> list[Pair]:
    """Both answers to each request, those that differ first."""
    found = [(each, here.answers.get(each), there.answers.get(each)) for each in ids]
    return sorted(found, key=same)


def same(pair: Pair) -> bool:
    """Whether both have answered, with the same words. White space does not count."""
    _, here, there = pair
    if here is None or there is None or here.error or there.error:
        return False
    return here.text.split() == there.text.split()


def _answer(line: Mapping[str, Any]) -> Answer:
    """The answer in a line. One of a shape that nobody knows is an error, not a crash."""
    response, error = line.get("response") or {}, line.get("error") or {}
    body = response.get("body") or {}
    if error or response.get("status_code") != 200:
        found = error or body.get("error") or {}
        return Answer(error=str(found.get("message") or f"status {response.get('status_code')}"))
    try:
        return Answer(_text(body))
    except (KeyError, IndexError, TypeError, AttributeError):
        return Answer(error="the answer cannot be read")


def _text(body: Mapping[str, Any]) -> str:
    if "data" in body:
        vectors = [each["embedding"] for each in body["data"]]
        digest = hashlib.sha256(json.dumps(vectors).encode()).hexdigest()[:8]
        return f"{len(vectors)} embeddings ({digest})"
    text = answer_in(body)
    if text is None and "choices" in body:
        calls = body["choices"][0]["message"].get("tool_calls") or []
        return json.dumps([call.get("function") for call in calls])  # their ids are drawn anew for each answer
    return json.dumps(body.get("output")) if text is None else str(text)
