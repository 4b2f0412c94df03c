"""A process that spends a budget in calls of ten tokens, several at a time, until it is refused. Prints the number of calls."""

import asyncio
import sys

from app.budgets.calls import CallBudgets, CallSize
from app.db.pool import Database
from app.errors import BudgetSpent
from app.metering.lines import SYNC, parts_of
from app.metering.spend_labels import NO_SPEND_LABELS

SIZE = CallSize(4, 6, 6, {})
AT_ONCE = 8


async def main(url: str, tenant_id: int) -> int:
    line = parts_of(tenant_id, "key", NO_SPEND_LABELS, "toy", SYNC, None)
    done = 0
    async with Database(url, size=2) as database:
        ours = CallBudgets(database)

        async def spend() -> None:
            nonlocal done
            while True:
                try:
                    async with ours.reserving(line, SIZE) as call:
                        await asyncio.sleep(0.001)
                        call.settle(4, 0, 6)
                except BudgetSpent:
                    return
                done += 1

        async with ours.keeping():
            await asyncio.gather(*(spend() for _ in range(AT_ONCE)))
    return done


if __name__ == "__main__":
    print(asyncio.run(main(sys.argv[1], int(sys.argv[2]))))
