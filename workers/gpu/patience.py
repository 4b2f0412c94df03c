"""When a worker that found nothing to claim tries again. Pure.

A worker that has work claims again whenever it needs more. An idle one asks the database nothing: the answer to its heartbeat
says whether work waits, and after a submit the API wakes a few workers. In a small fleet each worker also looks now and then,
so that whatever makes a chunk ready is found at once; all of them together look 25 times a second, however many they are.
"""

FIRST_LOOK_SECONDS = 0.01  # after a claim that found something
LOOKS_PER_SECOND = 25  # of all workers
FEW_WORKERS = 50  # from this number on, none looks
JOINS_PER_SECOND = 500  # workers that claim because their heartbeats say so
MOST_HEARTBEATS = 8  # that are ignored after claims that found nothing, although work waited


class Patience:
    """The patience of one worker. `shortest`: seconds between two looks of the smallest fleet. `workers`: in the fleet."""

    def __init__(self, shortest: float) -> None:
        self.workers = 1
        self._shortest = shortest
        self._pause = FIRST_LOOK_SECONDS
        self._heartbeats = 1  # of which one may lead to a claim
        self._heard = 0
        self._told = False

    def fed(self) -> None:
        """A claim found a chunk."""
        self._pause, self._heartbeats, self._heard, self._told = FIRST_LOOK_SECONDS, 1, 0, False

    def starved(self) -> None:
        """A claim found nothing. If a heartbeat led to it, the next ones are trusted less: what waits may not be for us."""
        if self._told:
            self._heartbeats, self._told = min(MOST_HEARTBEATS, 2 * self._heartbeats), False

    def heard(self, *, work_waits: bool) -> bool:
        """Take the answer to a heartbeat. Returns whether to claim."""
        self._heard = self._heard + 1 if work_waits else 0
        if self._heard < self._heartbeats:
            return False
        self._heard, self._told = 0, True
        return True

    def look(self) -> float | None:
        """Seconds until the next look; they grow with each. None: do not look."""
        if self.workers >= FEW_WORKERS:
            return None
        longest = max(self._shortest, self.workers / LOOKS_PER_SECOND)
        pause, self._pause = min(self._pause, longest), min(2 * self._pause, longest)
        return pause

    def spread(self, heartbeat_seconds: float) -> float:
        """Over how many seconds workers spread the claims that their heartbeats lead to."""
        return max(0.0, self.workers / JOINS_PER_SECOND - heartbeat_seconds)
