"""Publishes hints after the commit. The steward and the notifier use it; the API and the GPU worker never do."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self
from uuid import UUID

import structlog
from celery import Celery

from app.causes import cause
from app.settings import Settings
from app.tasks import broker, names

log = structlog.get_logger(__name__)

_PATIENCE_SECONDS = 3.0
_RETRY = {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0}


class Hints:
    """Publishes on the broker which endpoints have due deliveries, and which duties are due. A hint may get lost: it is repeated
    later.

    Celery publishes synchronously, so a thread does it. While a slow broker blocks that thread, further hints are declined at
    once, so the caller's event loop is never blocked.
    """

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._thread = ThreadPoolExecutor(1, "hints")
        self._current: Future[bool] | None = None
        self._reachable = True

    @classmethod
    def of(cls, settings: Settings, database_url: str) -> Self:
        """Hints on the broker that the settings name."""
        return cls(broker.celery_app(settings, database_url))

    async def endpoints(self, endpoint_ids: Sequence[UUID]) -> bool:
        """Publish one hint for each endpoint. False: the broker did not take all of them."""
        return await self._published(names.DELIVER, names.WEBHOOKS, [each.hex for each in endpoint_ids])

    async def duties(self, duties: Sequence[str], seconds: float) -> bool:
        """Publish one hint for each duty, by its name. False: the broker did not take all of them.

        They expire after so many seconds, since each is repeated while no worker takes it. That is judged by the clock of the
        worker, which may be wrong by more than the minute of some duties.
        """
        return await self._published(names.DO, names.DUTIES, duties, seconds)

    async def _published(
        self, task: str, queue: str, arguments: Sequence[str], expires_seconds: float | None = None
    ) -> bool:
        if self._current is not None and not self._current.done():
            return False
        self._current = self._thread.submit(self._publish, task, queue, tuple(arguments), expires_seconds)
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._current)), _PATIENCE_SECONDS)
        except TimeoutError:
            return False

    async def close(self) -> None:
        """Close the connections to the broker."""
        self._thread.submit(self._app.close)
        await asyncio.to_thread(self._thread.shutdown)

    def _publish(self, task: str, queue: str, arguments: tuple[str, ...], expires_seconds: float | None) -> bool:
        try:
            with self._app.producer_pool.acquire(block=True, timeout=_PATIENCE_SECONDS) as producer:
                for argument in arguments:
                    self._app.send_task(
                        task,
                        args=[argument],
                        queue=queue,
                        expires=expires_seconds,
                        producer=producer,
                        retry=True,
                        retry_policy=_RETRY,
                    )
        except Exception as error:  # transports fail in many ways; pgmq's with an AttributeError among others
            if self._reachable:
                log.warning("hints.not_published", error=cause(error))
            self._reachable = False
            return False
        if not self._reachable:
            log.info("hints.published_again")
        self._reachable = True
        return True
