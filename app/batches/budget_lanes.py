"""The budgets of work that is being queued: its lanes, and the most that its items can cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app import clock
from app.batches import item_worsts
from app.batches.item_worsts import ItemSizes
from app.db.pool import Connection
from app.engines.catalogue import Model
from app.metering import lanes
from app.metering.budget_rules import Funding
from app.queue.chunking import ItemWorsts

MOVE_SECONDS = 60.0  # for so long after a change of budgets, the steward moves chunks that were cut before it
FRESH_SECONDS = 30.0  # half of it, so that the rest is left for the commit


@dataclass(frozen=True, slots=True)
class Lane:
    """The lane of a line, and the budgets in it."""

    lane_id: int
    funding: Funding

    def worsts(
        self, sizes: ItemSizes, model: Model, seqs: Sequence[int] | None = None, *, waits: bool = True
    ) -> ItemWorsts:
        """The most that new items of this model can cost. `seqs`: their places in the batch, if they are not 0, 1, 2, …
        `waits`: they may wait for the next window of a budget.

        Raises BadInput, BudgetSpent.
        """
        found = item_worsts.worsts(self.funding, self.lane_id, sizes, model.context_window)
        item_worsts.check(self.funding, found, seqs, waits=waits)
        return found

    def queued_worsts(self, est_tokens: Sequence[int], model: Model, *, open_ended: bool) -> ItemWorsts:
        """The same for items that were accepted before, of which only the estimate is known."""
        sizes = item_worsts.estimated(est_tokens, model.context_window, open_ended=open_ended)
        return item_worsts.worsts(self.funding, self.lane_id, sizes, model.context_window, clamp=True)


class LanesChanged(Exception):
    """Budgets were changed since they were read: cut the chunks anew."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of the lines that have a budget, as they were at `read_at`, in seconds of the monotonic clock."""

    line_ids: Sequence[int | None]
    of_line: Mapping[int | None, Lane]
    read_at: float

    async def check(self, conn: Connection) -> None:
        """Call last in the transaction that stores chunks with these lanes. Raises LanesChanged.

        The steward moves what is stored within MOVE_SECONDS after a change of budgets. So the budgets are read again only in a
        transaction that comes so late that its chunks may not be moved.
        """
        if clock.monotonic() - self.read_at < FRESH_SECONDS:
            return
        if _ids(await of_lines(conn, self.line_ids)) != _ids(self.of_line):
            raise LanesChanged


def _ids(lanes: Mapping[int | None, Lane]) -> dict[int | None, int]:
    return {line_id: lane.lane_id for line_id, lane in lanes.items()}


async def of_lines(conn: Connection, line_ids: Sequence[int | None]) -> dict[int | None, Lane]:
    """The lane of each line that has a budget."""
    found = await lanes.of_lines(conn, [line_id for line_id in line_ids if line_id is not None])
    return {line_id: Lane(await lanes.lane_id(conn, funding), funding) for line_id, funding in found.items()}


async def of_new(conn: Connection, line_ids: Sequence[int | None]) -> Lanes:
    """The same for work that is going to be queued, with the moment of the look."""
    read_at = clock.monotonic()
    return Lanes(line_ids, await of_lines(conn, line_ids), read_at)
