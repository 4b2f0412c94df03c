"""When an engine that is away should answer again: learned from how long it took before."""

from app import clock

UNKNOWN_SECONDS = 60.0  # assumed of an engine of our own until one start was seen
BLIP_SECONDS = 3.0  # an attached engine that was away for less has not been started anew
NEWEST = 0.5  # weight of the newest comeback
SOON_SECONDS = 1.0


class RecoveryTime:
    """`learned`: seconds from the start of an engine of our `own`, or from the loss of one that others run, until it answers."""

    def __init__(self, *, own: bool) -> None:
        self.learned: float | None = None
        self._own = own
        self._began = None if own else clock.monotonic()
        self._silent: float | None = None  # since when one of our own, which runs, does not answer

    def recall(self, seconds: float | None) -> None:
        """What a worker before us has learned; what we know ourselves is newer."""
        self.learned = seconds if self.learned is None else self.learned

    def starts(self) -> None:
        """We start its process."""
        self._began, self._silent = clock.monotonic(), None

    def lost(self) -> None:
        """It does not answer any more, or so its callers find. One of our own is dead only when we start it anew."""
        if not self._own:
            self._began = clock.monotonic()
        elif self._began is None:
            self._silent = clock.monotonic()

    def answers(self) -> None:
        """It is there."""
        began, self._began, self._silent = self._began, None, None
        seconds = 0.0 if began is None else clock.monotonic() - began
        if seconds > (0.0 if self._own else BLIP_SECONDS):
            self.learned = seconds if self.learned is None else NEWEST * seconds + (1 - NEWEST) * self.learned

    def expected(self) -> float | None:
        """Seconds until it should answer; None: nobody can tell. What is overdue is expected to stay so for as long again."""
        if self._silent is not None:
            return max(SOON_SECONDS, clock.monotonic() - self._silent)
        usual = UNKNOWN_SECONDS if self._own and self.learned is None else self.learned
        if usual is None:
            return None
        left = usual if self._began is None else usual - (clock.monotonic() - self._began)
        return max(SOON_SECONDS, abs(left))
