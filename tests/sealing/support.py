"""What the tests of encryption share."""

import os
import subprocess
from pathlib import Path

from app.db.pool import Database

PLANTED = "Zq7-planted-sentence-that-occurs-nowhere-else"
CLEAR = "Kx4-another-sentence-for-what-is-stored-in-the-clear"  # the server and its WAL are those of all tests


def holders(*folders: Path, text: str = PLANTED) -> list[str]:
    """The files below these folders that contain the text."""
    found = subprocess.run(
        ["grep", "-rlaF", text, *[str(folder) for folder in folders if folder.exists()]],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    return found.stdout.split()


async def on_disk(database: Database, *folders: Path, text: str = PLANTED) -> list[str]:
    """The files of the database, once every page is written, and below these folders that contain the text."""
    async with database.durable() as conn:
        await conn.execute("checkpoint")
        [(cluster,)] = await (await conn.execute("show data_directory")).fetchall()
    assert (Path(cluster) / "PG_VERSION").exists()
    return holders(Path(cluster), *folders, text=text)
