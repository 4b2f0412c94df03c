"""The Celery app that producers and the workers share, over pgmq, RabbitMQ or Redis.

Messages are hints and the rows are the truth, so the broker's durability stays at its defaults.
"""

from typing import Any

from celery import Celery
from kombu.entity import Queue

from app import optional_packages
from app.db.keepalive import noticed
from app.settings import Settings
from app.tasks import names, transport

VISIBILITY_SECONDS = 60
LONGEST_SECONDS = 25_200  # of a task; longer than any duty may take
_PUBLISH_SECONDS = 4


_Arguments = dict[str, object] | None


def celery_app(settings: Settings, database_url: str) -> Celery:
    """The Celery app for the configured broker. The default broker is in the database of `database_url`."""
    app = Celery("slackwater", set_as_current=False)
    app.conf.update(_COMMON, **_broker(settings, database_url))
    return app


def uses_pgmq(settings: Settings) -> bool:
    """Whether the messages are in a database, where a worker has to renew its leases on them."""
    return settings.broker_url.startswith("pgmq://") or not settings.broker_url


_COMMON: dict[str, Any] = {
    "task_acks_late": True,
    "task_reject_on_worker_lost": False,
    "task_retry_on_worker_lost": True,
    "task_ignore_result": True,
    "task_default_queue": names.WEBHOOKS,
    "task_create_missing_queues": False,
    "accept_content": ["json"],
    "worker_prefetch_multiplier": 1,
    "worker_soft_shutdown_timeout": 20,
    "worker_cancel_long_running_tasks_on_connection_loss": False,  # threads cannot be ended, and rows decide what is done again
    "worker_enable_remote_control": False,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_connection_timeout": _PUBLISH_SECONDS,
}


def _broker(settings: Settings, database_url: str) -> dict[str, Any]:
    options: dict[str, Any]
    url = settings.broker_url
    if url.startswith("amqp"):
        # By itself RabbitMQ waits for half an hour until a message is acknowledged.
        patient = {"x-queue-type": "quorum", "x-consumer-timeout": 1000 * LONGEST_SECONDS}
        return {"broker_url": url, "task_queues": _queues({"x-queue-type": "quorum"}, patient)}
    if url.startswith("redis"):
        optional_packages.REDIS.need()
        options = {"visibility_timeout": VISIBILITY_SECONDS, "socket_connect_timeout": _PUBLISH_SECONDS}
        return {"broker_url": url, "task_queues": _queues(), "broker_transport_options": options}
    if url and not url.startswith("pgmq://"):
        raise ValueError(f"broker_url: {url.split(':', 1)[0]}:// is not one of amqp://, redis:// and pgmq://")
    options = {
        "dsn": noticed(url.replace("pgmq://", "postgresql://", 1), settings.lease_seconds) if url else database_url,
        "visibility_timeout": VISIBILITY_SECONDS,
        "wait_time_seconds": 0,  # NOTIFY wakes the consumer; a long poll in the server would block the other queues
        "use_notify": True,
        "polling_interval": 1.0,
        "notify_throttle_interval_ms": 0,  # a message whose NOTIFY was throttled would wait for the next poll
        "init_extension": False,
    }
    return {
        "broker_url": f"{transport.SCHEME}://database",
        "task_queues": _queues(),
        "broker_transport_options": options,
    }


def _queues(of_webhooks: _Arguments = None, of_duties: _Arguments = None) -> list[Any]:
    build: Any = Queue  # kombu is only half typed
    return [
        build(name, routing_key=name, durable=True, queue_arguments=arguments)
        for name, arguments in ((names.WEBHOOKS, of_webhooks), (names.DUTIES, of_duties))
    ]
