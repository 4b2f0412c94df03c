"""The `/metrics` of a steward: whether it leads, its rounds, and what they did. A steward that waits for the lead shows zeros."""

from collections.abc import Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily

from app import part_metrics
from app.admission import observation
from app.queue.settling import Settled
from app.sessions import metrics as sessions
from app.states import BATCH
from app.tracing.recorder import SpanCounts

PREFIX = "slackwater_steward_"
OUTCOMES = ("ran", "passed", "dropped", "refused")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class HandoffCounts:
    """Items that became of results, by outcome. `handed_on`: counted since the start."""

    def __init__(self, handed_on: Mapping[str, int]) -> None:
        self._handed_on = handed_on

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The one metric."""
        found = CounterMetricFamily(
            f"{PREFIX}handoff_items",
            "what became of results that were handed on to the next stages",
            labels=["outcome"],
        )
        for outcome in OUTCOMES:
            found.add_metric([outcome], self._handed_on.get(outcome, 0))
        yield found


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = part_metrics.new_registry("steward")
        self.leading = Gauge(f"{PREFIX}leading", "1 while this steward leads", registry=self.registry)
        self.rounds = Histogram(
            f"{PREFIX}round_seconds", "duration of a round of maintenance", buckets=_BUCKETS, registry=self.registry
        )
        self.refused = self._counter("refused_steps", "steps that the database refused; they run again")
        self.workers_lost = self._counter("workers_lost", "workers whose lease lapsed")
        self.chunks_reaped = self._counter("chunks_reaped", "chunks that were taken back from lost workers")
        self.audit_problems = self._counter("audit_problems", "what did not fit in the audit log; should be 0")
        self.audit_overdue = self._gauge(
            "audit_checkpoint_overdue_seconds",
            "for how long a checkpoint of the audit log has been due; should be below 60",
        )
        self.ended = Counter(
            f"{PREFIX}batches_ended",
            "batches that ended, by their state; deadline: whether they had one",
            ["state", "deadline"],
            registry=self.registry,
        )
        for state in BATCH.final():
            for deadline in ("yes", "no"):
                self.ended.labels(str(state), deadline)
        # Of what it decides about stages of pipelines and background turns; the API counts the rest.
        governed = observation.MATCHES, observation.SENSITIVE, observation.WITHHELD
        for collector in (SpanCounts(), sessions.TURNS, sessions.CHECKPOINTS, *governed):
            self.registry.register(collector)

    def count_ended(self, batches: Iterable[Settled]) -> None:
        """Count batches that ended. Call after the commit."""
        for batch in batches:
            self.ended.labels(str(batch.state), "yes" if batch.has_deadline else "no").inc()

    def exposition(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(PREFIX + name, meaning, registry=self.registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(PREFIX + name, meaning, registry=self.registry)
