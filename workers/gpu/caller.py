"""Sends one item to the engine until its outcome is final."""

import asyncio
from collections.abc import Callable

import orjson
import structlog
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_random_exponential

from app.engines.client import EngineClient
from app.engines.outcome import FAILED, INVALID, EngineDown, Outcome, Reject, Retry
from app.engines.requests import EngineRequest, Target, build, tenant_salt
from app.errors import StorageError
from app.queue.types import Item
from app.storage.store import Store

BACKOFF_SECONDS = (0.25, 8.0)  # first and longest mean pause between two tries
LAPSED_SECONDS = 0.05
NEWS_SECONDS = 0.05  # a dying engine refuses a new connection before it has closed all the old ones

log = structlog.get_logger()


class Caller:
    """Knows who is in the engine now: `calling`, and `lost`, who lost the connection and will be sent again.

    `gate` is open while requests may be sent, and `may_send` tells whether the worker's lease still holds; retries wait too.
    """

    def __init__(self, client: EngineClient, target: Target, secret: bytes, attempts: int, store: Store) -> None:
        self.target = target
        self.gate = asyncio.Event()
        self.may_send: Callable[[], bool] = lambda: True
        self.calling: set[asyncio.Task[None]] = set()
        self.lost: set[asyncio.Task[None]] = set()
        self._examining = 0
        self._client = client
        self._secret = secret
        self._attempts = attempts
        self._store = store

    async def call(self, task: "asyncio.Task[None]", item: Item, tenant_id: int) -> tuple[Outcome, int]:
        """The outcome of an item, and how often it was sent. A Retry is final: the attempts are used up."""
        try:
            body = orjson.loads(await self._store.get(item.body.decode()) if item.stored else item.body)
            request = build(body, item.endpoint, self.target, tenant_salt(self._secret, tenant_id))
        except (ValueError, TypeError, AttributeError) as error:
            return Reject(INVALID, f"the item cannot be sent: {error}"), 1
        except StorageError as error:
            log.warning("object.unavailable", key=item.body.decode(), error=str(error.__cause__ or error))
            lost = Reject(FAILED, "the item's body is no longer in the object store")
            return lost if error.missing else Retry(error.message, busy=True), 0
        except Exception:
            log.exception("request.broken")
            return Reject(FAILED, "internal error"), 1
        tries = AsyncRetrying(
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=BACKOFF_SECONDS[0], max=BACKOFF_SECONDS[1]),
            retry=retry_if_result(lambda outcome: isinstance(outcome, Retry)),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        try:
            outcome: Outcome = await tries(self._send, task, request)
        finally:
            self.lost.discard(task)
        return outcome, int(tries.statistics["attempt_number"])

    async def _send(self, task: "asyncio.Task[None]", request: EngineRequest) -> Outcome:
        await self.gate.wait()
        while not self.may_send():  # noqa: ASYNC110  (after a long stop of this process; the heartbeat will abort us)
            await asyncio.sleep(LAPSED_SECONDS)
        self.calling.add(task)
        try:
            outcome = await self._client.complete(request)
            return await self._examined(task, outcome) if isinstance(outcome, EngineDown) else outcome
        except Exception:
            log.exception("request.broken")
            return Reject(FAILED, "internal error")
        finally:
            self.calling.discard(task)

    async def _examined(self, task: "asyncio.Task[None]", down: EngineDown) -> EngineDown | Retry:
        """Whether the engine is down indeed. If it lives it lost this request only.

        Who is refused waits for news of those that the engine died with. While one's lost connection is examined, the others
        are told that the engine died of a request.
        """
        if not down.suspect:
            await asyncio.sleep(NEWS_SECONDS)
            return EngineDown(down.reason, suspect=self._examining > 0)
        self._examining += 1
        try:
            if not await self._client.healthy():
                return down
            self.lost.add(task)
            return Retry(down.reason)
        finally:
            self._examining -= 1
