"""Counts submits by their outcome, for `/metrics`."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Counter
from starlette.requests import ClientDisconnect

from app.errors import SlackwaterError

SUBMITS = Counter(
    "slackwater_submits_total",
    "submits of batches: accepted, refused (an error of the caller), failed (an error of ours)",
    ("outcome",),
)
for _outcome in ("accepted", "refused", "failed"):
    SUBMITS.labels(_outcome)


@contextmanager
def counted() -> Iterator[None]:
    """Count the submit that is done inside. Everything that the caller can correct is refused, and a broken connection too."""
    outcome = "failed"
    try:
        yield
        outcome = "accepted"
    except ClientDisconnect:
        outcome = "refused"
        raise
    except SlackwaterError as error:
        outcome = "refused" if error.status < 500 else "failed"
        raise
    finally:
        SUBMITS.labels(outcome).inc()
