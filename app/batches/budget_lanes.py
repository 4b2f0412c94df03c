"""The budgets of work that is being queued: its lanes, and the most that its items can cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.batches import item_worsts
from app.batches.item_worsts import ItemSizes
from app.db.pool import Connection, Database
from app.engines.catalogue import Model
from app.metering import lanes
from app.metering.budget_rules import Funding
from app.queue.chunking import ItemWorsts


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


async def of_lines(conn: Connection, line_ids: Sequence[int | None]) -> dict[int | None, Lane]:
    """The lane of each line that has a budget."""
    found = await lanes.of_lines(conn, [line_id for line_id in line_ids if line_id is not None])
    return {line_id: Lane(await lanes.lane_id(conn, funding), funding) for line_id, funding in found.items()}


async def of_new(database: Database, line_ids: Sequence[int]) -> dict[int | None, Lane]:
    """The same, before the transaction of a submit."""
    async with database.relaxed() as conn:
        return await of_lines(conn, line_ids)
