"""`python -m app.api`: serve the API until a signal stops it."""

import asyncio
import signal
import sys
from contextlib import suppress
from typing import Any

import uvicorn

import app.quick_start  # noqa: F401
from app import private_targets, processes, telemetry
from app import settings as configuration
from app.access import oidc
from app.api.app import create_app
from app.api.connection_limits import backlog, limits_of, raise_file_limit
from app.api.http_protocol import ClientTimeouts, limited, parsers
from app.api.request_limits import HEAD_BYTES
from app.crypto import secret_key
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.engines import catalogue
from app.files import shared_storage
from app.settings import Settings
from app.tracing import recorder
from app.user_errors import Failure, guarded

_PATIENCE_SECONDS = 5.0


async def _check_store(settings: Settings) -> bool:
    """Check that the object store is shared. Returns False if the database does not answer. Raises StoreNotShared."""
    async with Database.of(settings, "api", patience_seconds=_PATIENCE_SECONDS) as database:
        with suppress(*TRANSIENT):
            await shared_storage.require(database, settings, "api")
            return True
    return False


def main() -> None:
    """Run uvicorn. On SIGTERM requests in flight are finished first; exit code 0."""
    processes.keep_private()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again at its end
    settings = configuration.load()
    telemetry.configure(settings, "api")
    recorder.configure(settings, "api")
    # Errors that the user can correct are reported before uvicorn can turn them into a traceback.
    catalogue.load(settings.models_file)
    secret_key(settings)
    private_targets.check(settings)
    if (problem := oidc.problem(settings)) is not None:
        raise Failure(f"The identity provider cannot be used: {problem}.", "docs/access.md shows an example.")
    checked = asyncio.run(_check_store(settings))
    (settings.data_dir / "spool").mkdir(parents=True, exist_ok=True)
    serve(settings, store_checked=checked)


def serve(settings: Settings, *, store_checked: bool) -> None:
    """Serve until a signal comes, also at the separate port of operators if there is one."""
    app, options = create_app(settings, store_checked=store_checked), serving(settings)
    if not settings.admin_port:
        uvicorn.run(app, **options)
        return
    config = uvicorn.Config(app, **options)
    admin = uvicorn.Config(app, **options | {"host": settings.admin_host, "port": settings.admin_port})
    server = uvicorn.Server(config)
    server.run([config.bind_socket(), admin.bind_socket()])
    if not server.started:
        sys.exit(3)  # as uvicorn.run does


def serving(settings: Settings) -> dict[str, Any]:
    """The options of uvicorn, with the limits on clients. Raises this process's limit of open files."""
    files = raise_file_limit()
    timeouts = ClientTimeouts(settings.header_seconds, settings.body_seconds)
    return {
        "host": settings.host,
        "port": settings.port,
        "http": limited(parsers()[0], limits_of(settings, files), timeouts),
        "ws": "none",  # an upgrade would bypass the limits
        "h11_max_incomplete_event_size": HEAD_BYTES,
        "backlog": backlog(files),
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 10,
    }


if __name__ == "__main__":
    guarded(main)
