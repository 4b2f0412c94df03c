"""`python -m app.api`: serve the API until told to stop."""

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any

import psycopg
import uvicorn
from psycopg_pool import PoolTimeout

from app import private_targets, processes, telemetry
from app import settings as configuration
from app.api.app import create_app
from app.api.connection_limits import backlog, raise_file_limit, room
from app.api.http_protocol import ClientTimeouts, guarded, parsers
from app.api.request_limits import HEAD_BYTES
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.files import shared_storage
from app.settings import Settings
from app.user_errors import guarded as told

_PATIENCE_SECONDS = 5.0


async def _check_store(settings: Settings) -> bool:
    """Whether the store has been checked; not so where the database is away. Raises StoreNotShared."""
    async with Database.of(settings, "api", patience_seconds=_PATIENCE_SECONDS) as database:
        with suppress(psycopg.OperationalError, PoolTimeout):
            await shared_storage.require(database, settings, "api")
            return True
    return False


def main() -> None:
    """Run uvicorn. On SIGTERM requests in flight are finished first; exit code 0."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal once more when it is through
    settings = configuration.load()
    processes.keep_private()
    telemetry.configure(settings, "api")
    # What the user can mend is reported before uvicorn can wrap it in a traceback.
    catalogue.load(settings.models_file)
    secret_key(settings)
    private_targets.check(settings)
    checked = asyncio.run(_check_store(settings))
    (settings.data_dir / "spool").mkdir(parents=True, exist_ok=True)
    uvicorn.run(create_app(settings, store_checked=checked), **serving(settings))


def serving(settings: Settings) -> dict[str, Any]:
    """How uvicorn serves: behind bounds on what clients send. Lets this process open as many files as it may."""
    files = raise_file_limit()
    patience = ClientTimeouts(settings.header_seconds, settings.body_seconds)
    return {
        "host": settings.host,
        "port": settings.port,
        "http": guarded(parsers()[0], room(settings, files), patience),
        "ws": "none",  # an upgrade would leave that protocol
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "backlog": backlog(files),
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 10,
    }


if __name__ == "__main__":
    told(main)
