"""A notifier's own `/metrics`: what became of its attempts, how long receivers took, how many are on their way."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
LATE = "late"  # its claim was lost before its outcome could be recorded


class Metrics:
    """One per process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.attempts = Counter(
            "slackwater_notifier_attempts",
            "attempts at deliveries, by what they led to: deliver, retry, give_up, late",
            ["outcome"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "slackwater_notifier_attempt_seconds",
            "until the receiver had answered",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "slackwater_notifier_in_flight", "attempts that wait for their receivers", registry=self.registry
        )

    def exposition(self) -> bytes:
        """As Prometheus text."""
        return generate_latest(self.registry)
