"""The notifier's Celery worker: a thread pool, no gossip, no remote control, messages acknowledged after the work."""

import logging
import signal
import socket
import warnings
from typing import Any

import structlog
from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_ready
from celery.worker import state

from app.db.embedded import direct_url
from app.settings import Settings
from app.tasks import broker
from workers.notifier import tasks
from workers.notifier.async_bridge import AsyncBridge
from workers.notifier.lease_renewer import LeaseRenewer

log = structlog.get_logger(__name__)

_TICK_SECONDS = 0.5
_THREADS = 4  # a task only passes an endpoint to the event loop


def celery_app(settings: Settings, bridge: AsyncBridge) -> Celery:
    """The shared app with our tasks, and on pgmq with the lease renewer."""
    app = broker.celery_app(settings, direct_url(settings))
    app.conf.worker_consumer = "workers.notifier.celery_consumer:Consumer"
    tasks.register(app, bridge)
    if broker.uses_pgmq(settings):
        app.steps["consumer"].add(LeaseRenewer)
    return app


def run(settings: Settings) -> int:
    """Consume until SIGTERM or SIGINT. Deliveries that are in flight finish first. Returns the exit code."""
    setup_logging.connect(_keep_logging, weak=False)
    worker_ready.connect(_stop_on_signals, weak=False)
    warnings.simplefilter("ignore", SecurityWarning)  # of running as root, as in a container; we accept JSON only
    with AsyncBridge(settings) as bridge:
        worker = celery_app(settings, bridge).Worker(
            hostname=f"notifier@{socket.gethostname()}",
            pool="threads",
            concurrency=_THREADS,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        worker.start()
        return int(worker.exitcode or 0)


def _stop_on_signals(sender: Any, **_: Any) -> None:
    """Replace Celery's handlers, which print to the terminal. A signal stops consuming and returns the waiting messages."""

    def stop(number: int, frame: Any) -> None:
        state.should_stop = 0

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if sender.hub is not None:  # RabbitMQ and Redis: their loop sleeps until a socket or a timer wakes it
        sender.hub.call_repeatedly(_TICK_SECONDS, lambda: None)
    log.info("notifier.consuming")


def _keep_logging(**_: Any) -> None:
    """Keep our logging: Celery configures none if this signal has a receiver. The libraries log warnings and errors only."""
    for name in ("celery", "kombu", "amqp", "pgmq", "psycopg.pool", "httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
