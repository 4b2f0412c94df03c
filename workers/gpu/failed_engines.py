"""The engines of a list whose workers failed: when each may be tried again, and which errors are not logged yet. Pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class _Failure:
    cause: str
    pause: float
    until: float


class FailedEngines:
    """By engine, its last failure since it worked. `pauses`: seconds before the next try, the first and the longest."""

    def __init__(self, pauses: tuple[float, float]) -> None:
        self._first, self._longest = pauses
        self._failures: dict[str, _Failure] = {}

    def failed(self, engine: str, cause: str, now: float) -> bool:
        """Its worker has failed; each time, the pause doubles. Returns whether the cause is another one than the last time."""
        last = self._failures.get(engine)
        pause = self._first if last is None else min(2 * last.pause, self._longest)
        self._failures[engine] = _Failure(cause, pause, now + pause)
        return last is None or last.cause != cause

    def worked(self, engine: str) -> None:
        """Its worker has controlled it. The next failure is a new one."""
        self._failures.pop(engine, None)

    def rests(self, engine: str, now: float) -> bool:
        """Whether it is too early to try it again."""
        last = self._failures.get(engine)
        return last is not None and now < last.until
