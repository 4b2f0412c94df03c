"""Pipelines whose keys or objects cannot be had now: they are left alone for a while, so that they hold up no others."""

from app import clock

SECONDS = 5.0


class PutOff:
    """Batches that are tried again later."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}

    def add(self, batch_id: int) -> None:
        """Leave this one alone for a while."""
        self._until[batch_id] = clock.monotonic() + SECONDS

    def now(self) -> list[int]:
        """Those that are left alone at this moment."""
        self._until = {batch_id: until for batch_id, until in self._until.items() if until > clock.monotonic()}
        return list(self._until)
