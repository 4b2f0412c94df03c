"""When a worker that found nothing to claim tries again. Pure.

A worker that has work claims again whenever it needs more. An idle one asks the database nothing: the answer to its heartbeat
says whether work waits, and whoever brings work wakes a few workers. In a small fleet each worker also looks now and then, so
that whatever makes a chunk ready is found at once; all of them together look 25 times a second, however many they are. Once its
heartbeats have said for a while that it waits, so that whoever brings work knows whom to wake, it looks once a second at most.
"""

FIRST_LOOK_SECONDS = 0.01  # after a claim that found something
LOOKS_PER_SECOND = 25  # of all workers
CALM_SECONDS = 1.0  # between two looks of a worker that is known to wait
KNOWN_HEARTBEATS = (
    3  # the first may have been sent before it waited; those who wake read a list that is half a second old
)
FEW_WORKERS = 50  # from this number on, none looks
JOINS_PER_SECOND = 500  # workers that claim because their heartbeats say so
MOST_HEARTBEATS = 8  # that are ignored after claims that found nothing, although work waited


class ClaimBackoff:
    """The pauses of one worker. `shortest`: seconds between two looks of the smallest fleet. `workers`: in the fleet."""

    def __init__(self, shortest: float) -> None:
        self.workers = 1
        self._shortest = shortest
        self._next_pause = FIRST_LOOK_SECONDS
        self._heartbeats = 1  # of which one may lead to a claim
        self._said = 0
        self._by_heartbeat = False
        self._waiting = 0  # heartbeats since it has waited

    def found_work(self) -> None:
        """A claim found a chunk."""
        self._next_pause, self._heartbeats, self._said, self._by_heartbeat = FIRST_LOOK_SECONDS, 1, 0, False
        self._waiting = 0

    def found_nothing(self) -> None:
        """A claim found nothing. If a heartbeat led to it, the next ones are trusted less: what waits may not be for us."""
        if self._by_heartbeat:
            self._heartbeats, self._by_heartbeat = min(MOST_HEARTBEATS, 2 * self._heartbeats), False

    def on_heartbeat(self, *, work_waits: bool) -> bool:
        """Take the answer to a heartbeat. Returns whether to claim."""
        self._waiting += 1
        self._said = self._said + 1 if work_waits else 0
        if self._said < self._heartbeats:
            return False
        self._said, self._by_heartbeat = 0, True
        return True

    def pause(self) -> float | None:
        """Seconds until the next look; they grow with each. None: do not look."""
        if self.workers >= FEW_WORKERS:
            return None
        longest = max(self._shortest, self.workers / LOOKS_PER_SECOND)
        if self._waiting >= KNOWN_HEARTBEATS:
            return max(CALM_SECONDS, longest)
        pause, self._next_pause = min(self._next_pause, longest), min(2 * self._next_pause, longest)
        return pause

    def spread(self, heartbeat_seconds: float) -> float:
        """Over how many seconds workers spread the claims that their heartbeats lead to."""
        return max(0.0, self.workers / JOINS_PER_SECOND - heartbeat_seconds)
