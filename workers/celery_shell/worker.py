"""A Celery worker: a thread pool, no gossip, no remote control, messages acknowledged after the work."""

import logging
import signal
import socket
import warnings
from collections.abc import Callable
from typing import Any

import structlog
from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_ready
from celery.worker import state

from app.db.embedded import direct_url
from app.settings import Settings
from app.tasks import broker
from workers.celery_shell.lease_renewer import LeaseRenewer

log = structlog.get_logger(__name__)

THREADS = 4  # a task only passes its work to an event loop
_TICK_SECONDS = 0.5


def celery_app(settings: Settings) -> Celery:
    """The shared app for a worker, on pgmq with the lease renewer. Its tasks are to be added."""
    app = broker.celery_app(settings, direct_url(settings))
    app.conf.worker_consumer = "workers.celery_shell.consumer:Consumer"
    if broker.uses_pgmq(settings):
        app.steps["consumer"].add(LeaseRenewer)
    return app


def run(app: Celery, part: str, queue: str, on_stop: Callable[[], None] = lambda: None) -> int:
    """Consume one queue until SIGTERM or SIGINT, and return the exit code once the running tasks have ended. `on_stop`, which may
    make them end sooner, is called by the signal's handler.
    """

    def ready(sender: Any, **_: Any) -> None:
        _stop_on_signals(sender, on_stop)
        log.info(f"{part}.consuming")

    setup_logging.connect(_keep_logging, weak=False)
    worker_ready.connect(ready, weak=False)
    warnings.simplefilter("ignore", SecurityWarning)  # of running as root, as in a container; we accept JSON only
    worker = app.Worker(
        hostname=f"slackwater-{part}@{socket.gethostname()}",
        queues=[queue],
        pool="threads",
        concurrency=THREADS,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


def _stop_on_signals(sender: Any, on_stop: Callable[[], None]) -> None:
    """Replace Celery's handlers, which print to the terminal. A signal stops consuming and returns the waiting messages."""

    def stop(number: int, frame: Any) -> None:
        state.should_stop = 0
        on_stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if sender.hub is not None:  # RabbitMQ and Redis: their loop sleeps until a socket or a timer wakes it
        sender.hub.call_repeatedly(_TICK_SECONDS, lambda: None)


def _keep_logging(**_: Any) -> None:
    """Keep our logging: Celery configures none if this signal has a receiver. The libraries log warnings and errors only."""
    for name in ("celery", "kombu", "amqp", "pgmq", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
