"""What the tests of encryption share."""

import os
import subprocess
from pathlib import Path

from app.db.pool import Database

PLANTED = "Zq7-planted-sentence-that-occurs-nowhere-else"


def holders(*folders: Path) -> list[str]:
    """The files below these folders that contain the planted text, in any of its plain forms."""
    found = subprocess.run(
        ["grep", "-rlaF", PLANTED, *[str(folder) for folder in folders if folder.exists()]],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return found.stdout.split()


async def checkpoint(database: Database) -> None:
    """Write every page to disk."""
    async with database.durable() as conn:
        await conn.execute("checkpoint")
