"""What `/metrics` tells of the queue, which costs the database the same however often it is scraped."""

import asyncio
import math

from app import clock
from app.db.pool import Pool
from app.db.transient_errors import TRANSIENT
from app.queue import overview
from app.webhooks import deliveries

PATIENCE_SECONDS = 2.0
TRUSTED_SECONDS = 5.0


class QueueGauges:
    """What is seen of the queue, over one connection that is for nothing else; looked at anew after `TRUSTED_SECONDS` only."""

    def __init__(self, watch: Pool) -> None:
        self._watch = watch
        self._looking = asyncio.Lock()
        self._found: list[tuple[str, str, float]] = []
        self._at = -math.inf

    async def found(self) -> list[tuple[str, str, float]]:
        """(name, part, value) of everything; empty while the database does not answer. One look at a time."""
        async with self._looking:
            if clock.monotonic() - self._at >= TRUSTED_SECONDS:
                self._found = await self._look()
                self._at = clock.monotonic()
            return self._found

    async def _look(self) -> list[tuple[str, str, float]]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._watch.connection() as conn:
                return await overview.gauges(conn) + await deliveries.gauges(conn)
        except (TimeoutError, *TRANSIENT):
            return []
