"""`python -m app.api`: serve the API until a signal stops it."""

import asyncio

import app.quick_start  # noqa: F401
from app import private_targets, processes
from app.access import oidc
from app.api import server
from app.crypto import secret_key
from app.engines import catalogue
from app.files import shared_storage
from app.user_errors import Failure, guarded


def main() -> None:
    """Run uvicorn. On SIGTERM requests in flight are finished first; exit code 0."""
    processes.keep_private()
    settings = server.prepare()
    # Errors that the user can correct are reported before uvicorn can turn them into a traceback.
    catalogue.load(settings.models_file)
    secret_key(settings)
    private_targets.check(settings)
    if (problem := oidc.problem(settings)) is not None:
        raise Failure(f"The identity provider cannot be used: {problem}.", "docs/access.md shows an example.")
    checked = asyncio.run(shared_storage.checked(settings, "api"))
    (settings.data_dir / "spool").mkdir(parents=True, exist_ok=True)
    server.serve(settings, store_checked=checked)


if __name__ == "__main__":
    guarded(main)
