"""When an engine that does not answer should be back, learned from earlier outages."""

from app import clock

UNKNOWN_SECONDS = 60.0  # assumed for a managed engine before its first start is over
BLIP_SECONDS = 3.0  # an attached engine that was away for less was not restarted
NEWEST = 0.5  # weight of the last recovery
SOON_SECONDS = 1.0  # least time that is ever expected


class RecoveryTime:
    """`own`: a managed engine. `learned`: seconds until it answers, from its start or, if attached, from its loss."""

    def __init__(self, *, own: bool) -> None:
        self.learned: float | None = None
        self._own = own
        self._began: float | None = None
        self._silent: float | None = None  # since when a managed engine runs and does not answer

    def recall(self, seconds: float | None) -> None:
        """Take the value of an earlier worker, unless this one has learned a newer value."""
        self.learned = seconds if self.learned is None else self.learned

    def starts(self) -> None:
        """Its process was started."""
        self._began, self._silent = clock.monotonic(), None

    def lost(self) -> None:
        """It does not answer. A managed engine counts as dead only when its process is restarted."""
        if not self._own:
            self._began = clock.monotonic() if self._began is None else self._began
        elif self._began is None:
            self._silent = clock.monotonic()

    def answers(self) -> None:
        """It answers again."""
        began, self._began, self._silent = self._began, None, None
        seconds = 0.0 if began is None else clock.monotonic() - began
        if seconds > (0.0 if self._own else BLIP_SECONDS):
            self.learned = seconds if self.learned is None else NEWEST * seconds + (1 - NEWEST) * self.learned

    def expected(self) -> float | None:
        """Seconds until it should answer; None if unknown. An overdue engine is expected after as long again as it is overdue."""
        if self._silent is not None:
            return max(SOON_SECONDS, clock.monotonic() - self._silent)
        usual = UNKNOWN_SECONDS if self._own and self.learned is None else self.learned
        if usual is None:
            return None
        left = usual if self._began is None else usual - (clock.monotonic() - self._began)
        return max(SOON_SECONDS, abs(left))
