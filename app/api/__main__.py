"""`python -m app.api`: serve the API until told to stop."""

import signal
import sys

import uvicorn

from app import processes, telemetry
from app import settings as configuration
from app.api.app import create_app
from app.crypto import secret_key
from app.engines import catalogue
from app.failure import guarded


def main() -> None:
    """Run uvicorn. On SIGTERM requests in flight are finished first; exit code 0."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal once more when it is through
    settings = configuration.load()
    processes.keep_private()
    telemetry.configure(settings, "api")
    # What the user can mend is reported before uvicorn can wrap it in a traceback.
    catalogue.load(settings.models_file)
    secret_key(settings)
    (settings.data_dir / "spool").mkdir(parents=True, exist_ok=True)
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    guarded(main)
