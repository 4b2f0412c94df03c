"""The Celery tasks. Arguments are ids; the rows say what is to be done."""

from uuid import UUID

from celery import Celery

from app.tasks import names
from workers.notifier.async_bridge import AsyncBridge


def register(app: Celery, bridge: AsyncBridge) -> None:
    """Add the tasks to `app`, running on `bridge`."""

    @app.task(name=names.DELIVER)  # type: ignore[untyped-decorator]
    def deliver(endpoint_id: str) -> None:
        """Done when it is begun: from then on the rows' leases stand for it, not the message."""
        bridge.deliver(UUID(endpoint_id))
