"""What turns and checkpoints count. How fast conversations grow is counted with all sessions (`app.metering.sessions`)."""

from prometheus_client import Counter

TURNS = Counter("slackwater_turns", "turns and stored responses that ended", ["result"])
CHECKPOINTS = Counter("slackwater_checkpoints", "summaries of conversations that were asked for", ["result"])
for _result in ("done", "failed", "cancelled", "stored"):
    TURNS.labels(_result)
for _result in ("asked", "made", "failed", "refused"):
    CHECKPOINTS.labels(_result)


def ended(result: str, count: int = 1) -> None:
    """Count turns that ended: `done`, `failed` or `cancelled`."""
    TURNS.labels(result).inc(count)
