"""`/metrics`: metrics of this API, and gauges of the queue, which are equal at every API."""

import hmac
from collections.abc import Iterable

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.core import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from app import part_metrics
from app.api import process_metrics
from app.api.deps import PartsDep
from app.api.queue_gauges import Gauge
from app.errors import AuthenticationError

router = APIRouter()
part_metrics.describe(REGISTRY, "api")

PREFIX = "slackwater_"
# name: (labels, description); with the label `quantile` it is a summary
MEANINGS = {
    "database_up": ("", "0 while no session of the database can be made or kept; absent before the first"),
    "gauges_age_seconds": (
        "",
        "how old the gauges of the queue are; above ten the database takes longer than two seconds for them, and after a minute "
        "they are absent",
    ),
    "oldest_snapshot_seconds": ("", "age of the oldest open snapshot; an old one slows every claim down"),
    "dead_tuples": ("table", "dead rows in the hot tables; grows if vacuum does not keep up"),
    "partitions_ahead_seconds": (
        "",
        "how far ahead, in whole days, for which item partitions exist; at 0 or less the submits of tomorrow fail",
    ),
    "fold_lag_deltas": ("", "finished chunks not yet counted in their batches; grows if no steward leads"),
    "ledger_drift": ("", "differences between ledger and queue in the last check, every ten minutes; should be 0"),
    "labels_used_ratio": (
        "label",
        "share of its labels that an account, or its fullest key, has used, from one half on, as account/label; at 1 a new "
        "one is recorded as `other`",
    ),
    "audit_lag_seconds": ("", "age of the oldest row of the audit log that is not sealed; grows if no steward leads"),
    "oldest_ready_seconds": (
        "",
        "age of the oldest run that has a chunk waiting for a worker, and not for money of a budget",
    ),
    "open_batches": ("", "batches that are not final"),
    "items": (
        "state",
        "items of batches that are not final: queued, claimed by a worker, in_engine as workers last reported, or done",
    ),
    "ready_chunks": ("model", "chunks that could be claimed now"),
    "unreserved_chunks": ("model", "chunks that wait for money of a budget, and not only for their turn or an engine"),
    "budget_spent_ratio": ("budget", "spent share of a budget in its present window, as account/name"),
    "budget_reserved_ratio": ("budget", "share of a budget that is reserved for work, as account/name"),
    "budget_overshoot": ("budget", "spent beyond the maximum: 10^-9 of the currency, or tokens"),
    "budget_overshoot_bound": (
        "budget",
        "the most that chunks with money, uncounted results and calls in flight can cost beyond what is reserved for them; "
        "in the unit of budget_overshoot",
    ),
    "parked_items": ("", "items of pipelines that wait for an answer from outside; 100000: or more"),
    "handoff_seconds": (
        "",
        "for how long the oldest results of pipelines wait to be handed on; grows if no steward leads",
    ),
    "handoff_markers": ("", "parts of results that wait to be handed on to the next stages; 1000: or more"),
    "handoff_stuck": ("", "parts of results that were set aside after five failures; should be 0"),
    "pipelines": ("state", "pipelines that are not final"),
    "inflight_tokens": ("model", "estimated tokens of leased chunks"),
    "cache_drifts_total": ("", "corrections of wrong scheduler caches; should be 0"),
    "waiting_tokens": ("model", "estimated tokens of the chunks that wait for a worker, from a sample of them"),
    "pace_tokens_per_second": ("model", "tokens that the pool has served per second of its last minutes with work"),
    "forecast_error_ratio": (
        "model",
        "relative error that four of five of the latest forecasts stayed within; it is the error of an ETA",
    ),
    "fold_lag_seconds": ("", "age of the oldest finished chunk that is not yet counted in its batch and in the ledger"),
    "overdue_batches": ("", "batches that should have expired a minute ago or earlier; 1000: or more"),
    "steward_leads": ("", "1 while a steward leads"),
    "notifier_connected": ("", "1 while a notifier is connected to the database"),
    "maintenance_connected": ("", "1 while a maintenance worker is connected to the database"),
    "duty_success_timestamp_seconds": ("duty", "when a duty last succeeded"),
    "duty_seconds": ("duty", "how long its last success took"),
    "duty_due_timestamp_seconds": ("duty", "when it is asked for next"),
    "duty_late_seconds": ("duty", "for how long a success of it has been due; should be below a minute or two"),
    "duty_failing": ("duty", "1 if its last run failed"),
    "engines": ("state", "engines that are known"),
    "workflow_ttft_seconds": (
        "workflow class quantile",
        "time to first token in this hour and the one before; class: sync or batch",
    ),
    "family_cached_ratio": (
        "family",
        "share of prompt tokens from the prefix cache in this hour and the one before; the 20 largest prompt families",
    ),
    "retry_success_ratio": (
        "workflow",
        "share of queued requests with more than one attempt that ended with an answer, in this hour and the one before",
    ),
    "recent_sessions": ("workflow", "sessions with a request in the last hour, of the latest 2000"),
    "session_growth_tokens": (
        "workflow quantile",
        "tokens by which a session's prompt is longer than the one before it",
    ),
    "callers": (
        "verdict",
        "1 of the verdict on callers' streams through the gateway in the last hour: protected, slowed or unmeasured",
    ),
    "callers_slowdown_ratio": (
        "",
        "how many times as long they took (p95, first token or gap, the larger) beside batch work as alone; absent: unmeasured",
    ),
    "live_workers": ("", "GPU workers with a valid lease"),
    "deliveries": (
        "state",
        "webhooks, and events to be fetched, that are not delivered; 1000: or more; dead: given up",
    ),
    "oldest_due_delivery_seconds": ("", "how long the oldest due webhook waits; grows if no notifier delivers"),
    "endpoints": ("state", "subscriptions"),
    "failing_endpoints": ("", "subscriptions whose receiver has accepted nothing lately"),
}


class Gauges(Collector):
    """One reading of the gauges in Prometheus's form."""

    def __init__(self, gauges: list[Gauge]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        """A family for each name."""
        for name, (label_names, meaning) in MEANINGS.items():
            labels = label_names.split()
            kind = "summary" if "quantile" in labels else "counter" if name.endswith("_total") else "gauge"
            family = Metric(PREFIX + name.removesuffix("_total"), meaning, kind)
            for gauge, part, value in self._gauges:
                if gauge == name:
                    values = (part,) if isinstance(part, str) else part
                    family.add_sample(PREFIX + name, dict(zip(labels, values, strict=False)), value)
            yield family


@router.get("/metrics")
async def metrics(request: Request, parts: PartsDep) -> Response:
    """Prometheus text; without the database only that of the process. A token in the settings is required as bearer."""
    check_token(request, parts.settings.metrics_token.get_secret_value())
    gauges = CollectorRegistry()
    gauges.register(Gauges(await parts.gauges.read()))
    pages = [generate_latest(registry) for registry in (*process_metrics.registries(), gauges)]
    return Response(b"".join(pages), media_type=CONTENT_TYPE_LATEST)


def check_token(request: Request, token: str) -> None:
    """Raise AuthenticationError unless the request has the token of the settings; an empty one admits everybody."""
    given = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token and not hmac.compare_digest(given.encode(), token.encode()):
        raise AuthenticationError(
            f"{request.url.path} requires a token: send the API's SLACKWATER_METRICS_TOKEN as `Authorization: Bearer <token>`"
        )
