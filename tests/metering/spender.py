"""A process that spends a budget in calls of ten tokens, several at a time, until it is refused. Prints the number of calls."""

import asyncio
import sys
from collections.abc import Sequence

from app.db.pool import Connection, Database
from app.errors import BudgetSpent
from app.metering.budget_rules import Budget
from app.metering.lines import SYNC, parts_of
from app.metering.slices import CallSize, Slices
from app.metering.spend_labels import NO_SPEND_LABELS

SIZE = CallSize(4, 6, 6, {})
AT_ONCE = 8


async def no_events(conn: Connection, budgets: Sequence[Budget]) -> None:
    """The race is about money only."""


async def main(url: str, tenant_id: int) -> int:
    line = parts_of(tenant_id, "key", NO_SPEND_LABELS, "toy", SYNC, None)
    done = 0
    async with Database(url, size=2) as database:
        slices = Slices(database, no_events)

        async def spend() -> None:
            nonlocal done
            while True:
                try:
                    async with slices.holding(line, SIZE) as hold:
                        await asyncio.sleep(0.001)
                        hold.settle(4, 0, 6)
                except BudgetSpent:
                    return
                done += 1

        async with slices.keeping():
            await asyncio.gather(*(spend() for _ in range(AT_ONCE)))
    return done


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1], int(sys.argv[2]))))
