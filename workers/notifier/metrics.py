"""The `/metrics` of a notifier: attempts by outcome, how long receivers took, and attempts in flight."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from app.tracing.recorder import SpanCounts

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LATE = "late"  # the claim was lost before the outcome was recorded


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.attempts = Counter(
            "slackwater_notifier_attempts",
            "attempts at deliveries by outcome: deliver, retry, give_up, late",
            ["outcome"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "slackwater_notifier_attempt_seconds",
            "time until the receiver has responded, in seconds",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "slackwater_notifier_in_flight", "attempts that wait for a response", registry=self.registry
        )

        self.registry.register(SpanCounts())

    def exposition(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)
