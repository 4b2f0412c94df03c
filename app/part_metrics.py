"""What every part's `/metrics` has: its version, its start, and the memory, processor time and open files of its process."""

from prometheus_client import Gauge, ProcessCollector, disable_created_metrics
from prometheus_client.registry import CollectorRegistry

from app import __version__

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second time series beside each counter, which nobody reads


def describe(registry: CollectorRegistry, part: str) -> None:
    """Add the version of a part to its metrics. The default registry has the process already."""
    info = Gauge(
        "slackwater_build_info",
        "1, with the version of this part",
        ["part", "version"],
        registry=registry,
        multiprocess_mode="livemax",
    )
    info.labels(part, __version__).set(1)


def new_registry(part: str) -> CollectorRegistry:
    """A registry for the page of a part, with its version and its process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    describe(registry, part)
    return registry
