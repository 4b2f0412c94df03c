"""The `/metrics` of a notifier: attempts by outcome, how late they began, how long receivers took, and attempts in flight."""

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from app import part_metrics
from app.tracing.recorder import SpanCounts
from app.webhooks.claims import Claim

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_DELAYS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
LATE = "late"  # the claim was lost before the outcome was recorded
OUTCOMES = ("deliver", "retry", "give_up", LATE)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = part_metrics.new_registry("notifier")
        self.attempts = Counter(
            "slackwater_notifier_attempts",
            "attempts at deliveries by outcome: deliver, retry, give_up, late",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in OUTCOMES:  # so that the first of each is an increase
            self.attempts.labels(outcome)
        self.seconds = Histogram(
            "slackwater_notifier_attempt_seconds",
            "time until the receiver has responded, in seconds",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.delay = Histogram(
            "slackwater_notifier_delay_seconds",
            "time from when a delivery was due to its attempt; without receivers that fail, whose attempts wait on purpose",
            buckets=_DELAYS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "slackwater_notifier_in_flight", "attempts that wait for a response", registry=self.registry
        )

        self.registry.register(SpanCounts())

    def begun(self, claim: Claim) -> None:
        """Count an attempt that begins."""
        if not claim.watched:
            self.delay.observe(max(0.0, (claim.begun - claim.due_at).total_seconds()))

    def exposition(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)
