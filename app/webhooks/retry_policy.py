"""What a receiver's answer means, and when to try again. Pure.

The schedule is the one Standard Webhooks recommends: ten attempts over about 75 hours.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_MINUTE, _HOUR = 60.0, 3600.0
DELAYS = (0.0, 5.0, 5 * _MINUTE, 30 * _MINUTE, *(hours * _HOUR for hours in (2, 5, 10, 14, 20, 24)))
"""Seconds before attempt 1, 2, …, 10."""

ATTEMPTS = len(DELAYS)
JITTER = 0.2
RETRY_AFTER_CAP = 24 * _HOUR

TERMINAL = frozenset({"ssrf_blocked", "secret_unreadable"})
BLAMELESS = frozenset({"secret_unreadable"})
"""Errors that say nothing of the receiver."""

CONTROL = "webhook-delivery"
"""The header by which a receiver ends a delivery (`abort-message`) or its subscription (`disable`), as Svix has it."""


@dataclass(frozen=True)
class Answer:
    """How one attempt ended. `error` is its class, None for a 2xx; `retry_after` in seconds as the receiver asked.

    `address`: the one that answered; `control`: what its `webhook-delivery` header says.
    """

    duration_ms: int
    status: int | None = None
    error: str | None = None
    body: bytes = b""
    retry_after: float | None = None
    address: str | None = None
    control: str | None = None


@dataclass(frozen=True)
class DeliveryVerdict:
    """The transition an answer leads to: `deliver`, `retry` after `delay` seconds, or `give_up`.

    `disable`: why the endpoint is to be told nothing more. `counts`: whether it says something of the endpoint's health.
    """

    verb: str
    delay: float = 0.0
    disable: str | None = None
    counts: bool = True


def judge(answer: Answer, attempt: int, jitter: float) -> DeliveryVerdict:
    """Decide on attempt number `attempt` (from 1). `jitter` is uniform in -1…1."""
    if answer.control == "disable":
        return DeliveryVerdict("give_up" if answer.error else "deliver", disable="the receiver asked for it")
    if answer.error is None:
        return DeliveryVerdict("deliver")
    if answer.error == "http_410":
        return DeliveryVerdict("give_up", disable="the receiver answered 410 Gone")
    if answer.control == "abort-message":
        return DeliveryVerdict("give_up", counts=False)
    pause, counts = delay(attempt, answer.retry_after, jitter), answer.error not in BLAMELESS
    if pause is None or answer.error in TERMINAL:
        return DeliveryVerdict("give_up", counts=counts)
    return DeliveryVerdict("retry", pause, counts=counts)


def epitaph(answer: Answer, verdict: DeliveryVerdict) -> str | None:
    """Why nothing more is sent of a delivery that is given up; None for any other."""
    if verdict.verb != "give_up":
        return None
    if verdict.disable is not None:
        return verdict.disable
    if answer.control == "abort-message":
        return "the receiver ended it"
    if answer.error in TERMINAL:
        return f"{answer.error}: it is of no use to try again"
    return f"all {ATTEMPTS} attempts failed, the last one with {answer.error}"


def delay(attempt: int, retry_after: float | None, jitter: float) -> float | None:
    """Seconds from failed attempt number `attempt` to the next; None when that was the last."""
    if attempt >= ATTEMPTS:
        return None
    scheduled = DELAYS[attempt] * (1 + JITTER * jitter)
    return max(scheduled, min(retry_after or 0.0, RETRY_AFTER_CAP))


def status_error(status: int) -> str | None:
    """The error class of an HTTP status; None for success. A redirect is a failure: it is never followed."""
    if 200 <= status < 300:
        return None
    if status in {410, 429}:
        return f"http_{status}"
    return f"http_{status // 100}xx"


def parse_retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds of a `Retry-After` header, given as seconds or as a date; None when absent or unreadable."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value[:12])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds())
