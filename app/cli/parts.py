"""`slackwater api`, `gpu-worker`, `maintenance`, `notifier` and `steward`: run one part of an installation in this process."""

import os
import sys

from app import optional_packages
from app.cli.options import settings
from app.processes import python_module


def api() -> None:
    """Run the HTTP API."""
    become("app.api")


def gpu_worker() -> None:
    """Run a worker: it starts vLLM, or attaches to SLACKWATER_ENGINE_URL or to those of SLACKWATER_ENGINES."""
    become("workers.gpu")


def maintenance() -> None:
    """Run the worker that does what may take long: retention, checks, the audit log."""
    become("workers.maintenance")


def notifier() -> None:
    """Run the worker that delivers webhooks."""
    become("workers.notifier")


def steward() -> None:
    """Run the steward, which maintains the queue. Several may run; one of them leads."""
    become("workers.steward")


def become(module: str) -> None:
    """Replace this process by the part, so that the part receives signals directly."""
    optional_packages.check(settings())  # a wrong setting or a missing extra is reported before the part starts
    os.execv(sys.executable, python_module(module))  # noqa: S606
