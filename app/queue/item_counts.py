"""Where items are: queued, claimed by a worker, in an engine, or done. Every surface counts so. Pure.

An item is in one place at a time. What is in an engine is as its worker last reported; all else is as it is now.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

PLACES = ("queued", "claimed", "in_engine", "done")  # each item is in one


@dataclass(frozen=True, slots=True)
class ItemCounts:
    """The items of a batch, or of all open batches. `succeeded`, `failed`: they have a result. `claimed`: a worker has them, and
    they are not in its engine. `ended`: the batch is final, so nothing of it is queued. `returns_at`: the worker of those in the
    engine is silent, and unless it reports again they are queued then.
    """

    total: int
    succeeded: int
    failed: int
    claimed: int = 0
    in_engine: int = 0
    ended: bool = False
    returns_at: datetime | None = None

    @property
    def done(self) -> int:
        """Those with a result."""
        return self.succeeded + self.failed

    @property
    def queued(self) -> int:
        """Those that no worker has, whatever they wait for."""
        return 0 if self.ended else max(0, self.total - self.done - self.claimed - self.in_engine)


NONE_LEFT = "none left"


def words(queued: int, claimed: int, in_engine: int, returns_at: datetime | None = None) -> str:
    """Where the items without a result are: "29 in the engine, 33 claimed by a worker, 138 queued"."""
    inside = "in the engine"
    if returns_at is not None:
        at = f"{returns_at.astimezone(UTC):%H:%M:%S} UTC"
        inside += f" (its worker is silent; they go back to the queue at {at})"
    places = ((in_engine, inside), (claimed, "claimed by a worker"), (queued, "queued"))
    return ", ".join(f"{count:,} {place}" for count, place in places if count) or NONE_LEFT
