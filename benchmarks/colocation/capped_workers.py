"""The batch workers of the simple arms, which limit the number of batch requests in the engine."""

from benchmarks.colocation.simulated_engine import SimulatedRequest
from benchmarks.colocation.simulation_view import SimulationView

FLOOD = 256


class CappedWorker:
    """Keeps at most `cap` batch requests in the engine."""

    listens = False  # to announcements of synchronous requests by the gateway

    def __init__(self, run: SimulationView, cap: int) -> None:
        self.run, self.cap = run, cap

    def may_admit(self, item: SimulatedRequest) -> bool:
        """Whether this item may be sent now."""
        return len(self.run.live) < self.cap

    def admitted(self, item: SimulatedRequest) -> None:
        """The item was sent to the engine."""

    def batch_token(self, item: SimulatedRequest) -> None:
        """A batch item got a token."""

    def sync_arrived(self, item: SimulatedRequest) -> None:
        """The gateway announces a synchronous request."""

    def sync_answered(self, item: SimulatedRequest) -> None:
        """A synchronous request got its first token."""

    def sync_finished(self, item: SimulatedRequest) -> None:
        """A synchronous request ended."""


class GaugeWorker(CappedWorker):
    """A common saturation gate: each second it admits sixteen more while queue depth and KV usage are below thresholds."""

    POLL_SECONDS, MORE, QUEUE_LIMIT, KV_LIMIT = 1.0, 16, 5, 0.8

    def __init__(self, run: SimulationView) -> None:
        super().__init__(run, 0)
        run.at(0.0, self._poll)

    def _poll(self) -> None:
        gauges = self.run.engine.gauges
        below = max(gauges.waiting / self.QUEUE_LIMIT, gauges.kv_usage / self.KV_LIMIT) < 1
        self.cap = min(FLOOD, len(self.run.live) + self.MORE) if below else 0
        self.run.admit()
        self.run.at(self.run.now + self.POLL_SECONDS, self._poll)
