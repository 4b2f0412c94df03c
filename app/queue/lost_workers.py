"""Finds the workers whose lease has lapsed (`app.worker_lease`), and decides whose loss is charged to their chunks. Pure.

One of its items may have killed a lost worker, so the loss is charged to its chunks (see `poison`). The loss is not charged if
there is evidence of another cause:

    the database   after the worker's last heartbeat the server was restarted, or the steward could not reach it for longer than
                   workers tolerate. A steward that has just started has seen nothing yet, and charges nothing.
    several        at least two workers, and most of all workers, fell silent within half a lease: a machine or a network failed

A worker that is the only one is always lost alone, so that an item that kills it is found. Workers that are lost together are
spared only once an hour, because items that kill two workers at the same time look the same, and must be given up at some point.

A worker that was only stopped, or cut off from the database, takes its charge back when it returns: see `charges`.

Where the database's clock jumps ahead, all leases lapse at once. To the steward that looks as if it had not reached the database
for so long, so nothing is charged. Where the clock is put back, what it knew of the time after that is forgotten, and leases that
were renewed then must begin again: otherwise those of lost workers would last until the clock is there again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from app import worker_lease

SPARED_SECONDS = 3600.0
PUT_BACK_SECONDS = 1.0  # a clock that is corrected by less was not put back


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's row. Times are in seconds of the database's clock."""

    worker_id: int
    started_at: float
    renewed_at: float
    lease_until: float

    @property
    def half_lease(self) -> float:
        """Workers that fall silent within this many seconds of each other count as lost together."""
        return (self.lease_until - self.renewed_at) / 2

    def lapsed(self, now: float) -> bool:
        """Whether the worker's lease has lapsed, so that its chunks are taken back."""
        return worker_lease.has_lapsed(self.lease_until, now)


def lost_alone(lost: Heartbeat, workers: Sequence[Heartbeat]) -> bool:
    """Whether a worker fell silent alone. `workers`: all present and recent workers, itself included."""
    present = [
        worker
        for worker in workers
        if worker.started_at <= lost.renewed_at + lost.half_lease
        and worker.renewed_at >= lost.renewed_at - lost.half_lease
    ]
    silent = sum(worker.renewed_at <= lost.renewed_at + lost.half_lease for worker in present)
    return silent < 2 or 2 * silent <= len(present)


@dataclass(slots=True)
class WorkerWatch:
    """The steward's memory between its rounds. `since`: from then on it has reached the database without a gap.

    `gap`: after this many seconds without a look, workers may have been lost because they could not reach the database.
    `put_back`: whether there may be leases that were renewed at a later time than it is now.
    """

    gap: float = inf
    since: float = inf
    put_back: bool = False
    _last_look: float = -inf
    _lost: list[Heartbeat] = field(default_factory=list)
    _spared: float = -inf

    def judge(self, now: float, server_start: float, workers: Sequence[Heartbeat]) -> tuple[list[int], list[int]]:
        """Returns the ids of the workers whose lease has lapsed, and of those whose loss is charged. Call once a round."""
        self.look(now, server_start)
        lapsed = [worker for worker in workers if worker.lapsed(now)]
        known = [*workers, *self._lost]
        charged = [
            worker.worker_id
            for worker in lapsed
            if worker.renewed_at >= self.since and (lost_alone(worker, known) or not self._spares(worker))
        ]
        self._lost = [worker for worker in (*self._lost, *lapsed) if worker.lease_until + 2 * worker.half_lease > now]
        return [worker.worker_id for worker in lapsed], charged

    def look(self, now: float, server_start: float) -> None:
        """Note that the database answers. `now`: the time of its clock; `server_start`: when its server started."""
        if now < self._last_look - PUT_BACK_SECONDS:
            self.put_back, self.since, self._last_look, self._lost, self._spared = True, now, now, [], -inf
        elif self.since == inf or now - self._last_look > self.gap:
            self.put_back |= self.since == inf  # who has just begun has not seen it
            self.since = now
        self._last_look = max(now, self._last_look)
        if server_start <= now:
            self.since = max(self.since, server_start)

    def _spares(self, lost: Heartbeat) -> bool:
        """Whether this joint loss is the first within SPARED_SECONDS."""
        if lost.renewed_at - self._spared > SPARED_SECONDS:
            self._spared = lost.renewed_at
        return lost.renewed_at - self._spared <= lost.half_lease
