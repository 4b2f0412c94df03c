"""The `/metrics` of a maintenance worker: the runs of duties. How each duty stands is in the database, and on the API's page."""

from prometheus_client import Counter, Gauge, Histogram, generate_latest

from app import part_metrics
from app.duties.schedule import DUTIES
from app.tracing.recorder import SpanCounts

PREFIX = "slackwater_maintenance_"
OUTCOMES = ("done", "failed", "left")
_BUCKETS = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14_400)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = part_metrics.new_registry("maintenance")
        self.runs = Counter(
            f"{PREFIX}runs",
            "runs of duties by outcome: done, failed, left to the next worker",
            ["duty", "outcome"],
            registry=self.registry,
        )
        for duty in DUTIES:
            for outcome in OUTCOMES:  # so that the first of each is an increase
                self.runs.labels(duty.name, outcome)
        self.seconds = Histogram(
            f"{PREFIX}run_seconds", "duration of a run of any duty", buckets=_BUCKETS, registry=self.registry
        )
        self.running = Gauge(f"{PREFIX}running", "duties that run now", registry=self.registry)
        self.audit_problems = Counter(
            f"{PREFIX}audit_problems", "what did not fit in the audit log; should be 0", registry=self.registry
        )
        self.registry.register(SpanCounts())

    def exposition(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)
