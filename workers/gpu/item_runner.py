"""Sends one item to the engine until its outcome is final."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace

import orjson
import structlog
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_random_exponential

from app.engines import context_window
from app.engines.client import EngineClient
from app.engines.continuation import Continuation, joined, resumable
from app.engines.outcome import FAILED, INVALID, Done, EngineDown, Outcome, Reject, Retry
from app.engines.requests import UNFIT, EngineRequest, Target, build, tenant_salt
from app.errors import StorageError
from app.queue.types import Kind
from workers.gpu.body_store import BodyStore
from workers.gpu.requests_in_engine import MOST_YIELDS, ItemProgress, RequestsInEngine, SentRequest, estimate

BACKOFF_SECONDS = (0.25, 8.0)  # first and longest mean pause between two tries
LAPSED_SECONDS = 0.05
NEWS_SECONDS = 0.05  # a dying engine refuses a new connection before it has closed all the old ones

log = structlog.get_logger()


class Caller:
    """Knows who is in the engine now: the `ledger`, and `lost`, who lost the connection and will be sent again.

    `gate` is open while requests may be sent, and `may_send` tells whether the worker's lease still holds; retries wait too.
    While `streams`, a request that could be continued is taken as a stream, so that it may yield; `on_first_token` is told.
    """

    def __init__(self, client: EngineClient, target: Target, secret: bytes, attempts: int, store: BodyStore) -> None:
        self.target = target
        self.gate = asyncio.Event()
        self.may_send: Callable[[], bool] = lambda: True
        self.streams = True
        self.continues = True  # whether what this model says can go on from its tokens
        self.on_first_token: Callable[[], None] = lambda: None
        self.ledger = RequestsInEngine()
        self.resumes = 0
        self.resumed_cached_tokens = 0
        self.lost: set[asyncio.Task[None]] = set()
        self._examining = 0
        self._client = client
        self._secret = secret
        self._attempts = attempts
        self._store = store

    @property
    def calling(self) -> Collection["asyncio.Task[None]"]:
        """Who is in the engine."""
        return self.ledger.calls.keys()

    async def call(self, task: "asyncio.Task[None]", progress: ItemProgress, tenant_id: int) -> tuple[Outcome, int]:
        """The outcome of an item, and how often it was sent. A Retry is final: the attempts are used up.

        What a stream says is kept in `progress`, from where a later call continues.
        """
        item = progress.item
        try:
            body = orjson.loads(await self._store.get(item.body.decode()) if item.stored else item.body)
            if item.endpoint == UNFIT:
                return Reject(INVALID, f"line {body['line']}: {body['message']}", body["param"], body["code"]), 1
            salt, followed = tenant_salt(self._secret, tenant_id), progress.log is not None and bool(body.get("stream"))
            request = build(body, item.endpoint, self.target, salt, stream=followed, open_ended=item.open_ended)
            request = replace(request, traceparent=item.traceparent)
            if not followed:
                progress.log = None
            if progress.log is None and progress.transcript is None and self._continuable(request):
                progress.transcript = Continuation(request, self.target.context_window)
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
            outcome: Outcome = await tries(self._send, task, request, progress)
        finally:
            self.lost.discard(task)
        if isinstance(outcome, Reject) and context_window.is_too_long(outcome.message):
            outcome = await self._counted(request, outcome)
        return outcome, int(tries.statistics["attempt_number"])

    async def _send(self, task: "asyncio.Task[None]", request: EngineRequest, progress: ItemProgress) -> Outcome:
        await self.gate.wait()
        while not self.may_send():  # noqa: ASYNC110  (after a long stop of this process; the heartbeat will abort us)
            await asyncio.sleep(LAPSED_SECONDS)
        tokens = 0
        heard = progress.log is not None and progress.item.kind == Kind.FLEX  # a yield would tell its words twice
        yields = MOST_YIELDS if heard else progress.yields
        self.ledger.enter(task, SentRequest(estimate(request.body), progress.transcript, yields))
        try:
            outcome = await self._complete(request, progress)
            if isinstance(outcome, Done):
                tokens = outcome.usage.prompt_tokens + outcome.usage.completion_tokens
            return await self._examined(task, outcome) if isinstance(outcome, EngineDown) else outcome
        except Exception:
            log.exception("request.broken")
            return Reject(FAILED, "internal error")
        finally:
            self.ledger.leave(task, tokens)

    async def _counted(self, request: EngineRequest, refused: Reject) -> Reject:
        """The refusal of a prompt that is too long, in numbers if the engine counts it."""
        count = await self._client.count(request)
        said = count and count.problem(context_window.answer_tokens(request))
        return replace(refused, message=said or refused.message, reason=context_window.TOO_LONG)

    def _continuable(self, request: EngineRequest) -> bool:
        return self.streams and self.continues and resumable(request)

    async def probe(self, request: EngineRequest) -> None:
        """One synthetic request, whose outcome only telemetry will show."""
        await self._client.complete(request)

    async def _complete(self, request: EngineRequest, progress: ItemProgress) -> Outcome:
        transcript = progress.transcript
        if progress.log is not None:
            try:
                begun = progress.item.kind == Kind.RESPONSE
                return await self._client.events(request, progress.log.hear, begun=begun)
            finally:
                await progress.log.close()
        if transcript is None:
            return await self._client.complete(request, patient=not self.streams)
        if not transcript.complete:
            self.resumes += transcript.started
            outcome = await self._client.stream(transcript, self.on_first_token)
            if outcome is not None:
                return outcome
        self.resumed_cached_tokens += transcript.resumed_cached
        text = transcript.pieces[0]
        if len(transcript.pieces) > 1:
            whole = await self._client.detokenize(self.target.model, transcript.spoken_ids)
            text = joined(transcript.pieces, whole or "")
        return Done(transcript.answer(text), transcript.usage)

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
