"""Keeps the pgmq messages of running tasks invisible. The transport itself never renews their visibility timeout.

This is not a fence: only the fence of the row rejects a late write. The message of a task that hangs is renewed for ever, so
every task has a deadline.
"""

import threading
from typing import Any

import psycopg
import structlog
from celery import bootsteps

from app.causes import cause

log = structlog.get_logger(__name__)


class LeaseRenewer(bootsteps.StartStopStep):  # type: ignore[misc]
    """A boot step of the worker. Its thread runs from the start of the consumer to the end of the connection."""

    _stopping: threading.Event | None = None
    requires = ("celery.worker.consumer.tasks:Tasks",)

    def start(self, consumer: Any) -> None:
        """Start to renew the messages that this consumer holds."""
        stopping = self._stopping = threading.Event()
        channel = consumer.task_consumer.channel
        threading.Thread(target=self._renew, args=(channel, stopping), name="lease renewer", daemon=True).start()

    def stop(self, consumer: Any) -> None:
        """Stop with the connection. The next connection starts a new thread."""
        if self._stopping is not None:
            self._stopping.set()

    def _renew(self, channel: Any, stopping: threading.Event) -> None:
        while not stopping.wait(channel.visibility_timeout / 3):
            for tag, message in list(channel.qos._delivered.items()):
                info = message.delivery_info
                if tag in channel.qos._dirty or info.get("pgmq_msg_id") is None:  # done, or not of this transport
                    continue
                try:
                    channel.pgmq.set_vt(info["pgmq_queue"], info["pgmq_msg_id"], channel.visibility_timeout)
                except (psycopg.Error, AttributeError) as error:
                    log.warning("message.lease_not_renewed", error=cause(error))  # its task may run twice
