"""TTFT and ITL of synchronous requests, told apart by whether batch work was in the engine at the same time.

The quotient of both is what batch work costs the callers: the protection, as it is now. Requests of gateways and of the engine's
door are counted alike.
"""

from collections.abc import Callable

from prometheus_client import Histogram
from prometheus_client.registry import CollectorRegistry

from app.headroom.arrivals import Reported

BATCH, ALONE = "batch", "alone"
_FIRST_TOKEN = (0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60)
_GAP = (0.002, 0.004, 0.006, 0.008, 0.01, 0.013, 0.016, 0.02, 0.025, 0.03, 0.04, 0.05, 0.075, 0.1, 0.2, 0.5, 1)


class CallerTimes:
    """The two histograms of one worker. `busy_since`: whether batch work was in the engine at any moment since a second."""

    def __init__(self, busy_since: Callable[[float], bool]) -> None:
        self.registry = CollectorRegistry()
        self._busy_since = busy_since
        self._histograms = {
            "first_token": Histogram(
                "slackwater_worker_caller_ttft_seconds",
                "time to first token of a synchronous request; beside: batch work was in the engine meanwhile, or alone",
                ["beside"],
                buckets=_FIRST_TOKEN,
                registry=self.registry,
            ),
            "gap": Histogram(
                "slackwater_worker_caller_itl_seconds",
                "median gap between tokens of a synchronous stream; beside: as above",
                ["beside"],
                buckets=_GAP,
                registry=self.registry,
            ),
        }
        for histogram in self._histograms.values():
            for beside in (BATCH, ALONE):
                histogram.labels(beside)

    def observe(self, what: Reported, seconds: float, began: float) -> None:
        """Count one. `began`: the second of the monotonic clock at which it began."""
        self._histograms[what].labels(BATCH if self._busy_since(began) else ALONE).observe(seconds)
