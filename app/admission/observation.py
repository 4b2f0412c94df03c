"""Counts what the rules of the policy did, for `/metrics` and the log."""

from collections.abc import Mapping
from functools import lru_cache

import structlog
from prometheus_client import Counter

from app import clock
from app.policy.match import Decision

MATCHES = Counter(
    "slackwater_policy_matches_total",
    "requests and items that a rule of the policy matched: applied, denied, observed",
    ("rule", "effect"),
)
SENSITIVE = Counter(
    "slackwater_sensitive_values_total",
    "sensitive values in requests by kind, and what was done with them: report, tokenize, remove, refuse",
    ("kind", "mode"),
)
WITHHELD = Counter(
    "slackwater_tool_calls_withheld_total",
    "tool calls that a rule of the policy withheld from an answer, as often as the answer was read",
    ("rule",),
)
_LOG_SECONDS = 60.0
_log = structlog.get_logger("policy")
_logged: dict[str, float] = {}  # by rule that only watches: when it was logged last


def count(decision: Decision) -> None:
    """Count a decision. A rule that only watches is logged too, at most once a minute."""
    denied = decision.denial.rule_id if decision.denial else None
    for rule in decision.rules:
        _child(MATCHES, rule, "denied" if rule == denied else "applied").inc()
    for rule in decision.observed:
        _child(MATCHES, rule, "observed").inc()
        now = clock.monotonic()
        if now - _logged.get(rule, -_LOG_SECONDS) >= _LOG_SECONDS:
            _logged[rule] = now
            _log.info("policy.observed", rule=rule)


def count_sensitive(hits: Mapping[tuple[str, str], int]) -> None:
    """Count the sensitive values of an item."""
    for labels, number in hits.items():
        _child(SENSITIVE, *labels).inc(number)


@lru_cache(maxsize=4096)
def _child(counter: Counter, *labels: str) -> Counter:
    """`counter.labels`, which takes a lock each time."""
    return counter.labels(*labels)
