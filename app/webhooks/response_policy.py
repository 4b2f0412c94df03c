"""What follows from a receiver's response: the delivery is done, retried or given up, and the endpoint may be disabled. Pure."""

from dataclasses import dataclass

from app.webhooks.retry_policy import ATTEMPTS, delay

TERMINAL = frozenset({"ssrf_blocked", "secret_unreadable", "policy_denied"})
"""Errors after which another attempt cannot succeed."""

BLAMELESS = frozenset({"secret_unreadable", "policy_denied"})
"""Errors that do not count against the health of the endpoint."""

CONTROL = "webhook-delivery"
"""The response header by which a receiver ends a delivery (`abort-message`) or its subscription (`disable`), as in Svix."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing was sent. `by`: the id of the rule, or the name of the list of hosts."""

    by: str
    message: str


@dataclass(frozen=True)
class Answer:
    """How one attempt ended. `error`: its class, None for a 2xx. `retry_after`: in seconds, as the receiver asked.

    `address`: the address that answered. `control`: the value of the `webhook-delivery` header.
    `refusal`: why a rule of the policy or a list of hosts forbids the receiver; None: neither does.
    """

    duration_ms: int
    status: int | None = None
    error: str | None = None
    body: bytes = b""
    retry_after: float | None = None
    address: str | None = None
    control: str | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True)
class DeliveryVerdict:
    """The transition that follows: `deliver`, `retry` after `delay` seconds, or `give_up`.

    `disable`: why the endpoint is disabled, None if it is not. `counts`: whether the outcome counts for the endpoint's health.
    """

    verb: str
    delay: float = 0.0
    disable: str | None = None
    counts: bool = True


def judge(answer: Answer, attempt: int, jitter: float) -> DeliveryVerdict:
    """Decide what follows from attempt number `attempt` (from 1). `jitter` is uniform in -1…1."""
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


def dead_reason(answer: Answer, verdict: DeliveryVerdict) -> str | None:
    """Why a delivery was given up; None if it was not."""
    if verdict.verb != "give_up":
        return None
    if verdict.disable is not None:
        return verdict.disable
    if answer.control == "abort-message":
        return "the receiver ended it"
    if answer.refusal is not None:
        return answer.refusal.message
    if answer.error in TERMINAL:
        return f"{answer.error}: another attempt cannot succeed"
    return f"all {ATTEMPTS} attempts failed, the last one with {answer.error}"


def status_error(status: int) -> str | None:
    """The error class of an HTTP status; None for success. A redirect is a failure: it is never followed."""
    if 200 <= status < 300:
        return None
    if status in {410, 429}:
        return f"http_{status}"
    return f"http_{status // 100}xx"
