"""Sends one item to the engine until its outcome is final."""

import asyncio

import orjson
import structlog
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_random_exponential

from app.engines.client import EngineClient
from app.engines.outcome import FAILED, INVALID, EngineDown, Outcome, Reject, Retry
from app.engines.requests import EngineRequest, Target, build, tenant_salt
from app.queue.types import Item

BACKOFF_SECONDS = (0.25, 8.0)  # first and longest mean pause between two tries
NEWS_SECONDS = 0.05  # a dying engine refuses a new connection before it has closed all the old ones

log = structlog.get_logger()


class Caller:
    """Knows who is in the engine now. `gate` is open while requests may be sent; a retry waits for it too."""

    def __init__(self, client: EngineClient, target: Target, secret: bytes, attempts: int) -> None:
        self.target = target
        self.gate = asyncio.Event()
        self.calling: set[asyncio.Task[None]] = set()
        self._lost = 0
        self._client = client
        self._secret = secret
        self._attempts = attempts

    async def call(self, task: "asyncio.Task[None]", item: Item, tenant_id: int) -> tuple[Outcome, int]:
        """The outcome of an item, and how often it was sent. A Retry is final: the attempts are used up."""
        try:
            body = orjson.loads(item.body)
            request = build(body, item.endpoint, self.target, tenant_salt(self._secret, tenant_id))
        except (ValueError, TypeError, AttributeError) as error:
            return Reject(INVALID, f"the item cannot be sent: {error}"), 1
        tries = AsyncRetrying(
            stop=stop_after_attempt(self._attempts),
            wait=wait_random_exponential(multiplier=BACKOFF_SECONDS[0], max=BACKOFF_SECONDS[1]),
            retry=retry_if_result(lambda outcome: isinstance(outcome, Retry)),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        outcome: Outcome = await tries(self._send, task, request)
        return outcome, int(tries.statistics["attempt_number"])

    async def _send(self, task: "asyncio.Task[None]", request: EngineRequest) -> Outcome:
        await self.gate.wait()
        self.calling.add(task)
        try:
            outcome = await self._client.complete(request)
        except Exception:
            log.exception("request.broken")
            return Reject(FAILED, "internal error")
        finally:
            self.calling.discard(task)
        return await self._examined(outcome) if isinstance(outcome, EngineDown) else outcome

    async def _examined(self, down: EngineDown) -> EngineDown | Retry:
        """Whether the engine is down indeed. If it lives it lost this request only.

        Who is refused waits for news of those that the engine died with. While one's lost connection is examined, the others
        are told that the engine died of a request.
        """
        if not down.suspect:
            await asyncio.sleep(NEWS_SECONDS)
            return EngineDown(down.reason, suspect=self._lost > 0)
        self._lost += 1
        try:
            return Retry(down.reason) if await self._client.healthy() else down
        finally:
            self._lost -= 1
