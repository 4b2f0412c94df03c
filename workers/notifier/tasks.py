"""The Celery tasks. Arguments are ids; the row says what is to be done."""

import psycopg
import structlog
from celery import Celery

from app.tasks import names
from workers.notifier.bridge import Bridge

log = structlog.get_logger(__name__)


def register(app: Celery, bridge: Bridge) -> None:
    """Add the tasks to `app`, running on `bridge`."""

    @app.task(name=names.DELIVER)  # type: ignore[untyped-decorator]
    def deliver(delivery_id: int) -> None:
        try:
            bridge.deliver(delivery_id)
        except psycopg.OperationalError as error:
            log.warning(
                "no database; the sweep will repeat this delivery", delivery=delivery_id, error=str(error).strip()
            )
