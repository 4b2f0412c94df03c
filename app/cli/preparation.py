"""`python -m app.cli.preparation`: migrate the schema and create today's partitions, for `up`.

In a process of its own: what a migration imports takes 30 MB, which `up` would keep for as long as it runs.
"""

import asyncio
import json
import sys

import app.quick_start  # noqa: F401
from app import processes, telemetry
from app.causes import cause
from app.db import embedded, migrate, session_settings
from app.db.pool import Database
from app.errors import BehindPooler, SchemaMismatch, ServerUnfit
from app.queue import partitions
from app.settings import Settings, load
from app.user_errors import Failure


def prepare(settings: Settings) -> None:
    """Migrate the schema and create today's partitions. Raises Failure."""
    url = embedded.direct_url(settings)
    try:
        migrate.upgrade(url)
        asyncio.run(_create_partitions(url, settings))
    except SchemaMismatch as error:
        raise Failure(error.message) from error
    except (ServerUnfit, BehindPooler) as error:
        raise Failure(error.message, error.remedy) from error
    except Exception as error:
        reason = cause(error)
        raise Failure(f"The database cannot be used: {reason}", "Run `slackwater doctor` for details.") from error


async def _create_partitions(url: str, settings: Settings) -> None:
    async with Database(url, size=1) as database, database.durable() as conn:
        await session_settings.require(conn)
        async with conn.transaction():
            await partitions.create(conn, settings.partition_days_ahead)


def main() -> int:
    """Prepare the database of the settings. On failure its problem and its remedy go to stdout, as JSON; the exit code is 1."""
    processes.keep_private()
    settings = load()
    file = telemetry.log_file(settings.data_dir, "up")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as output:
        telemetry.configure(settings, "up", output)
        try:
            prepare(settings)
        except Failure as failure:
            json.dump([failure.problem, failure.remedy], sys.stdout)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
