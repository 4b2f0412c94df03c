"""`/metrics`: this process, and the queue as the database has it, the same from every API process."""

import hmac
from collections.abc import Iterable

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.api.deps import PartsDep
from app.errors import AuthenticationError

router = APIRouter()

PREFIX = "slackwater_"
# name: (label of its parts, meaning)
MEANINGS = {
    "oldest_snapshot_seconds": ("", "age of the oldest open snapshot; an old one makes every claim dearer"),
    "dead_tuples": ("table", "dead rows in the hot tables; growing: vacuum does not keep up"),
    "partitions_ahead_days": ("", "days for which item partitions exist already; 0 or less: tomorrow's submits fail"),
    "fold_lag_deltas": ("", "finished chunks not yet counted in their batches; growing: no steward leads"),
    "oldest_ready_seconds": ("", "time since the run of the oldest batch began that has a chunk waiting for a worker"),
    "open_batches": ("", "batches that are not final"),
    "ready_chunks": ("model", "chunks that could be claimed now"),
    "inflight_tokens": ("model", "estimated tokens of leased chunks"),
    "cache_drifts_total": ("", "how often the scheduler's caches were found wrong and corrected; should be 0"),
    "live_workers": ("", "GPU workers whose lease holds"),
    "deliveries": (
        "state",
        "webhooks and events to be fetched, but for those delivered; 1000: or more; dead: given up",
    ),
    "oldest_due_delivery_seconds": ("", "how long a webhook has been due; growing: no notifier delivers"),
    "endpoints": ("state", "subscriptions"),
    "failing_endpoints": ("", "subscriptions whose receiver accepts nothing lately"),
}


class Gauges(Collector):
    """One look at the queue, in Prometheus's terms."""

    def __init__(self, found: list[tuple[str, str, float]]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        """A family for each name, and whether the database answered at all."""
        up = "1 while the database answers this scrape"
        yield GaugeMetricFamily(f"{PREFIX}database_up", up, value=1.0 if self._found else 0.0)
        for name, (label, meaning) in MEANINGS.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(PREFIX + name, meaning, labels=[label] if label else None)
            for found, part, value in self._found:
                if found == name:
                    family.add_metric([part] if label else [], value)
            yield family


@router.get("/metrics")
async def metrics(request: Request, parts: PartsDep) -> Response:
    """Prometheus text; without the database, of the process only. With a token set, for its bearer alone."""
    _check_token(request, parts.settings.metrics_token.get_secret_value())
    found = await parts.looks.found()
    registry = CollectorRegistry()
    registry.register(Gauges(found))
    return Response(generate_latest(REGISTRY) + generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _check_token(request: Request, token: str) -> None:
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token and not hmac.compare_digest(given.encode(), token.encode()):
        raise AuthenticationError(
            "/metrics asks for a token: send the API's SLACKWATER_METRICS_TOKEN as `Authorization: Bearer <token>`"
        )
