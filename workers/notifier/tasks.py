"""The Celery tasks. Their arguments are ids; the rows hold what is to be done."""

from uuid import UUID

from celery import Celery

from app.tasks import names
from workers.notifier.async_bridge import AsyncBridge


def register(app: Celery, bridge: AsyncBridge) -> None:
    """Add the tasks to `app`. They run on `bridge`."""

    @app.task(name=names.DELIVER)  # type: ignore[untyped-decorator]
    def deliver(endpoint_id: str) -> None:
        """Start the deliveries of an endpoint. The task ends at once: from here on the leases of the rows protect them."""
        bridge.deliver(UUID(endpoint_id))
