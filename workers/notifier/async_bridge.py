"""What the notifier's tasks work with: the database, the guarded client and the sender, on one event loop."""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog

from app import crypto
from app.causes import cause
from app.changes import service as changes
from app.db import session_settings
from app.db.embedded import direct_url
from app.db.pool import Database
from app.settings import Settings
from app.tasks.producer import Hints
from app.webhooks.due_sweep import sweep
from app.webhooks.egress import Egress
from workers import metrics_page
from workers.celery_shell.loop_thread import OnLoop
from workers.notifier.delivery import Sender

log = structlog.get_logger(__name__)


class AsyncBridge(OnLoop):
    """Owns the loop, the database pools and the guarded client."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._tasks: list[asyncio.Task[None]] = []

    def deliver(self, endpoint_id: UUID) -> None:
        """Start to send the due deliveries of an endpoint. Called from a Celery thread."""
        self._thread.loop.call_soon_threadsafe(self._sender.kick, endpoint_id)

    async def _open(self) -> None:
        self._database = Database.of(self._settings, "notifier")
        await self._database.open()
        await session_settings.require_at_start(self._database)
        await changes.started(self._database, "notifier")
        self._egress = Egress.of(self._settings)
        self._sender = Sender(self._database, self._egress, crypto.secret_key(self._settings), self._settings)
        self._hints = Hints.of(self._settings, direct_url(self._settings))
        self._tasks = [asyncio.create_task(self._sweep_forever()), asyncio.create_task(self._serve_metrics())]
        self._tasks.append(asyncio.create_task(self._sender.rules.keep()))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._sender.drain()
        await self._sender.rules.audit.store()  # what the last attempts have noted
        await self._hints.close()
        await self._egress.close()
        await self._database.close()

    async def _sweep_forever(self) -> None:
        await forever(lambda: sweep(self._database, self._hints, self._settings), self._settings.webhook_sweep_seconds)

    async def _serve_metrics(self) -> None:
        settings, metrics = self._settings, self._sender.metrics
        await metrics_page.serve(
            settings.host, settings.notifier_metrics_port, "SLACKWATER_NOTIFIER_METRICS_PORT", metrics.exposition
        )


async def forever(work: Callable[[], Awaitable[object]], pause_seconds: float) -> None:
    """Repeat `work` for ever. An error is logged once, and again only after `work` has succeeded."""
    failing = False
    while True:
        try:
            await work()
        except Exception as error:
            if not failing:
                log.warning("sweep.failed", error=f"{type(error).__name__}: {cause(error)}")
            failing = True
        else:
            failing = False
        await asyncio.sleep(pause_seconds)
