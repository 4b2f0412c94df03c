"""Prometheus metrics of the gateway, exported by the API's `/metrics`. `RequestTimer` observes the latencies.

Every metric has the class of the request, which is `sync` for all requests of the gateway. Time to first token (TTFT) and
inter-token latency (ITL) are measured for streams only; of other calls only the duration is measured.
"""

from prometheus_client import Counter, Gauge, Histogram

SYNC = "sync"
_BUCKETS = (0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60)
_LABELS = ("class", "model")

TTFT = Histogram(
    "slackwater_ttft_seconds",
    "time from the arrival of a streamed request to its first token",
    _LABELS,
    buckets=_BUCKETS,
)
ITL = Histogram(
    "slackwater_itl_seconds", "time between two events with tokens of one stream", _LABELS, buckets=_BUCKETS
)
DURATION = Histogram(
    "slackwater_request_seconds", "time from the arrival of a request to the end of its answer", (*_LABELS, "streamed"),
    buckets=(*_BUCKETS, 120, 300, 600),
)  # fmt: skip
OPEN = Gauge(
    "slackwater_open_requests",
    "requests of this gateway that an engine processes",
    _LABELS,
    multiprocess_mode="livesum",
)
QUEUED = Gauge(
    "slackwater_queued_requests",
    "requests that wait in this gateway for an engine",
    _LABELS,
    multiprocess_mode="livesum",
)
ERRORS = Counter(
    "slackwater_relay_errors_total",
    "requests without a successful answer: no_engine, busy, unreachable, lost, timeout, refused, broken, caller_gone",
    (*_LABELS, "kind"),
)
ANNOUNCEMENTS = Counter(
    "slackwater_announcements_total",
    "requests announced to the engine's worker: told, failed, skipped (no worker, or a recent failure)",
    ("outcome",),
)
for _outcome in ("told", "failed", "skipped"):
    ANNOUNCEMENTS.labels(_outcome)
