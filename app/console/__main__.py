"""`python -m app.console`: serve the console until a signal stops it."""

import asyncio
import signal
import sys

import uvicorn

import app.quick_start  # noqa: F401
from app import processes, telemetry
from app import settings as configuration
from app.access import oidc, origin
from app.console.app import create_app
from app.engines import catalogue
from app.files import shared_storage
from app.serving.http_protocol import plain
from app.serving.options import limited_options
from app.settings import Settings
from app.user_errors import Failure, guarded

_STOP_SECONDS = 2  # open streams end with the process


def main() -> None:
    """Run uvicorn. Raises Failure where browsers would send their session in the clear."""
    processes.keep_private()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = configuration.load()
    telemetry.configure(settings, "console")
    check(settings)
    catalogue.load(settings.models_file)
    asyncio.run(shared_storage.checked(settings, "console", only_bodies=True))
    uvicorn.run(
        create_app(settings),
        host=settings.console_host,
        port=settings.console_port,
        server_header=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        **limited_options(settings, plain),
    )


def check(settings: Settings) -> None:
    """Raise Failure for an address at which browsers of other machines would send their session in the clear.

    The same for an identity provider that cannot work.
    """
    if (problem := oidc.problem(settings)) is not None:
        raise Failure(f"The identity provider cannot be used: {problem}.", "docs/access.md shows an example.")
    if not settings.console_port:
        raise Failure("The console has no port: SLACKWATER_CONSOLE_PORT is 0.", "Give it one, for example 8701.")
    if origin.exposed(settings):
        raise Failure(
            f"The console at {origin.of(settings)} would send sessions over the network unencrypted.",
            "Put a proxy with https in front of it and set SLACKWATER_CONSOLE_URL=https://…, or listen on 127.0.0.1.",
        )


if __name__ == "__main__":
    guarded(main)
