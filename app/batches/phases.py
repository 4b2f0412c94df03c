"""Notes what each open batch waits for, when that changes. A task of the leading steward, which `why` and the lists of batches
can look back at.
"""

from app.batches.why_chain import MOST_TOGETHER, explain
from app.db.pool import Database
from app.queue import dependencies, phases, reads
from app.queue.estimate import Outlook
from app.queue.phases import OpenBatch
from app.queue.reads import BatchStatus
from app.states import BatchState

MOST_BATCHES = 256  # in one look
RUNNING = "running"
BUDGET, DEPENDENCY = "budget", "dependency"


def code(status: BatchStatus, outlook: Outlook | None) -> str:
    """What a batch waits for, as `why` names it; `running` if it does not. Pure."""
    money = status.state == BatchState.OPEN and outlook is not None and outlook.waits_for_money
    if money and outlook is not None and not outlook.in_order and not outlook.leased:
        return BUDGET
    waiting = explain(status, outlook).waiting
    return waiting.code if waiting else RUNNING


class PhaseLog:
    """Looks at MOST_BATCHES open batches at a time, one after another, and begins again after the last."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._after: OpenBatch | None = None

    async def look(self) -> int:
        """Look at the next batches. Returns how many wait for something else than before."""
        async with self._database.relaxed() as conn:
            batches = await phases.open_batches(conn, self._after, MOST_BATCHES)
        self._after = batches[-1] if len(batches) == MOST_BATCHES else None
        codes: dict[int, str] = {}
        for first in range(0, len(batches), MOST_TOGETHER):
            part = batches[first : first + MOST_TOGETHER]
            sights = await reads.snapshots(self._database, [(each.tenant_id, each.request_id) for each in part])
            found = [sight for sight in sights if sight is not None]
            codes |= {status.batch_id: code(status, outlook) for status, outlook in found if not status.finalized_at}
        codes |= await self._waiting([batch_id for batch_id, found in codes.items() if found == BatchState.PAUSED])
        if not codes:
            return 0
        async with self._database.relaxed() as conn, conn.transaction():
            return await phases.note(conn, codes)

    async def _waiting(self, paused: list[int]) -> dict[int, str]:
        """Those of the paused batches that wait for others."""
        if not paused:
            return {}
        async with self._database.relaxed() as conn:
            return dict.fromkeys(await dependencies.waiting(conn, paused), DEPENDENCY)
