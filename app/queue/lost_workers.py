"""Whose loss is charged to the chunks that it had in hand. Pure.

A lost worker may have been killed by one of its items, so its loss is charged to its chunks (see `poison`). It says nothing of
them, and is not charged, where there is evidence that something else was lost:

    the database   since the worker last renewed its lease, the server has started, or the steward itself did not reach it for
                   longer than workers can stand; a steward that has just begun to watch knows nothing, and charges nothing
    several        most of the workers that there were, and at least two, fell silent within half a lease: a machine, a network

Who is the only worker is always lost alone, so that an item that kills it is found. And workers lost together are spared once
an hour: items that kill two workers in step look the same, and have to end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

SPARED_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker as its row says; times in seconds of the database's clock."""

    worker_id: int
    started_at: float
    renewed_at: float
    lease_until: float

    @property
    def near(self) -> float:
        """Who falls silent within so many seconds does so at the same time."""
        return (self.lease_until - self.renewed_at) / 2


def alone(lost: Beat, workers: Sequence[Beat]) -> bool:
    """Whether a worker fell silent by itself. `workers`: all that there are and were lately, itself included."""
    there = [
        worker
        for worker in workers
        if worker.started_at <= lost.renewed_at + lost.near and worker.renewed_at >= lost.renewed_at - lost.near
    ]
    silent = sum(worker.renewed_at <= lost.renewed_at + lost.near for worker in there)
    return silent < 2 or 2 * silent <= len(there)


@dataclass(slots=True)
class Watch:
    """What the steward knows of the time between its rounds. `since`: it has seen the database without a gap since then.

    `gap`: seconds without a look after which workers may have been lost for want of the database.
    """

    gap: float = inf
    since: float = inf
    _looked: float = -inf
    _lost: list[Beat] = field(default_factory=list)
    _spared: float = -inf

    def judge(self, now: float, server_start: float, workers: Sequence[Beat]) -> tuple[list[int], list[int]]:
        """Look once. Returns the ids of the workers whose lease has lapsed, and of those among them whose loss is charged."""
        self.look(now, server_start)
        lapsed = [worker for worker in workers if worker.lease_until < now]
        known = [*workers, *self._lost]
        charged = [
            worker.worker_id
            for worker in lapsed
            if worker.renewed_at >= self.since and (alone(worker, known) or not self._spares(worker))
        ]
        self._lost = [worker for worker in (*self._lost, *lapsed) if worker.lease_until + 2 * worker.near > now]
        return [worker.worker_id for worker in lapsed], charged

    def look(self, now: float, server_start: float) -> None:
        """Note that the database answers: at this time of its clock, and it runs since `server_start`."""
        if self.since == inf or now - self._looked > self.gap:
            self.since = now
        self._looked, self.since = max(now, self._looked), max(self.since, server_start)

    def _spares(self, lost: Beat) -> bool:
        """Whether those lost together at this time are the first for long."""
        if lost.renewed_at - self._spared > SPARED_SECONDS:
            self._spared = lost.renewed_at
        return lost.renewed_at - self._spared <= lost.near
