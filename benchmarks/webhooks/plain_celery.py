"""Deliveries with a plain Celery task: the message has the URL and the body, and a failure calls `self.retry`.

    python -m benchmarks.webhooks.plain_celery (publish|work)

`publish` reads a JSON list of [url, webhook-id, body] from stdin. Both use the broker in SLACKWATER_DATABASE_URL.
Transport, number of threads and late acknowledgement are those of the notifier. Rows, fences and leases are missing.
"""

import json
import sys
from typing import Any

import httpx
from celery import Celery

from app import settings as configuration
from app.db.embedded import database_url
from app.tasks import broker, names

THREADS = 32
TIMEOUT_SECONDS = 15.0


def application() -> tuple[Celery, Any]:
    """The Celery app and its task."""
    settings = configuration.load()
    app = broker.celery_app(settings, database_url(settings))
    client = httpx.Client(timeout=TIMEOUT_SECONDS, limits=httpx.Limits(max_keepalive_connections=0))

    @app.task(bind=True, name="plain.deliver", max_retries=10)  # type: ignore[untyped-decorator]
    def deliver(self: Any, url: str, webhook_id: str, body: str) -> None:
        headers = {"content-type": "application/json", "webhook-id": webhook_id}
        try:
            client.post(url, content=body, headers=headers).raise_for_status()
        except httpx.HTTPError as error:
            raise self.retry(exc=error, countdown=30, queue=names.WEBHOOKS) from error

    return app, deliver


def main() -> None:
    """Publish messages, or run the worker."""
    app, deliver = application()
    if sys.argv[1] == "publish":
        with app.producer_pool.acquire(block=True) as producer:
            for arguments in json.load(sys.stdin):
                deliver.apply_async(arguments, queue=names.WEBHOOKS, producer=producer)
        return
    worker = app.Worker(
        pool="threads",
        concurrency=THREADS,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()


if __name__ == "__main__":
    main()
