"""A process that seals as a steward does, until it is killed. It writes a line for each transaction that sealed anything."""

import asyncio
import sys

from app.audit import sealing
from app.db.pool import Database


async def main(url: str) -> None:
    async with Database(url, size=2) as database:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            await sealing.seal(database, most=7)
            await asyncio.sleep(0)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
