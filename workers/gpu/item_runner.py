"""Sends one item to the engine until its outcome is final."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import structlog

from app import clock, trace_context
from app.engines import context_window
from app.engines.client import EngineClient
from app.engines.continuation import Continuation, joined, resumable
from app.engines.mending import NO_USAGE, prompt_estimate
from app.engines.outcome import (
    FAILED,
    INVALID,
    Done,
    Doubt,
    EngineDown,
    ErrorClass,
    Outcome,
    Reject,
    Retry,
    Settled,
    judged,
    unreadable,
)
from app.engines.requests import CHAT, UNFIT, EngineRequest, Target, build, streamed, tenant_salt
from app.errors import KeysUnavailable, StorageError
from app.openai_codes import OpenAICode
from app.queue.types import Kind
from workers.gpu.body_store import BodyStore
from workers.gpu.engine_probe import EngineProbe
from workers.gpu.requests_in_engine import (
    MOST_YIELDS,
    ItemProgress,
    RequestsInEngine,
    SentRequest,
    TokenCount,
)
from workers.gpu.tuning import TUNING

BACKOFF_SECONDS = (0.25, 8.0)  # most of the first pause between two tries, which doubles, and of any
LAPSED_SECONDS = 0.05  # between two checks of a lapsed lease
NEWS_SECONDS = 0.05  # a dying engine refuses new connections before it closes all old ones

log = structlog.get_logger()


class ItemRunner:
    """Sends items to the engine. `ledger`: the requests that are in it. `lost`: tasks that lost their connection and try again.

    A request, or a retry, is sent while `gate` is set and `may_send` returns true: the worker's lease holds. While `streams`,
    a request that can go on from its tokens is streamed, so that it can yield. `continues`: whether the model's output allows
    that. If the engine's page counts no steps, a chat that cannot go on is streamed as well, so that its pace is seen. `probe`
    knows whether the engine can be used at all.
    """

    def __init__(
        self,
        client: EngineClient,
        target: Target,
        secret: bytes,
        attempts: int,
        store: BodyStore,
        *,
        continues: bool = True,
        may_send: Callable[[], bool] = lambda: True,
        probe_pause_seconds: float = TUNING.probe_pause_seconds,
    ) -> None:
        self.target = target
        self.gate = asyncio.Event()
        self.streams = True
        self.ledger = RequestsInEngine()
        self.resumes = 0
        self.resumed_cached_tokens = 0
        self.lost: set[asyncio.Task[None]] = set()
        self.probe = EngineProbe(client, lambda: self.target, probe_pause_seconds)
        self._continues = continues
        self._streams_have_usage = True
        self._may_send = may_send
        self._examining = 0
        self._client = client
        self._secret = secret
        self._attempts = attempts
        self._store = store

    @property
    def calling(self) -> Collection["asyncio.Task[None]"]:
        """The tasks whose requests are in the engine."""
        return self.ledger.calls.keys()

    async def run(
        self,
        task: "asyncio.Task[None]",
        progress: ItemProgress,
        tenant_id: int,
        on_first_token: Callable[[], None] = lambda: None,
    ) -> tuple[Settled, int]:
        """The outcome of an item, and how often it was sent. A Retry is final: all attempts are used.

        The tokens of a stream are kept in `progress`, so that a later call can go on. `on_first_token` is called for a stream.
        """
        item = progress.item
        try:
            body = orjson.loads(await self._body(progress))
            if item.endpoint == UNFIT:
                return Reject(INVALID, f"line {body['line']}: {body['message']}", body["param"], body["code"]), 0
            request = self._request(body, progress, tenant_salt(self._secret, tenant_id))
        except (ValueError, TypeError, AttributeError) as error:
            return Reject(INVALID, f"the item cannot be sent: {error}"), 0
        except StorageError as error:
            log.warning("object.unavailable", key=item.body.decode(), error=str(error.__cause__ or error))
            lost = Reject(FAILED, "the item's body is no longer in the object store", kind=ErrorClass.LOST)
            return lost if error.missing else Retry(error.message, busy=True), 0
        except KeysUnavailable as error:
            return Reject(FAILED, error.message, kind=ErrorClass.LOST), 0
        except Exception:
            log.exception("request.broken")
            return Reject(FAILED, "internal error"), 0
        try:
            outcome, sent = await self._tried(task, request, progress, on_first_token)
        finally:
            self.lost.discard(task)
        if isinstance(outcome, Reject) and context_window.is_too_long(outcome.message):
            outcome = await self._with_numbers(request, outcome)
        return outcome, sent

    async def _body(self, progress: ItemProgress) -> bytes:
        item = progress.item
        if not item.stored:
            return item.body
        body = await self._store.get(item.body.decode())
        return progress.seal.open_payload(item.seq, body) if progress.seal else body

    def _request(self, body: dict[str, Any], progress: ItemProgress, salt: str) -> EngineRequest:
        """The request of an item at batch priority. Prepares `progress` for how its answer will be read."""
        item, followed = progress.item, progress.log is not None and bool(body.get("stream"))
        request = build(body, item.endpoint, self.target, salt, stream=followed, open_ended=item.open_ended)
        traceparent = progress.traceparent or trace_context.onward(item.traceparent).get(trace_context.HEADER)
        request = replace(request, traceparent=traceparent)
        if not followed:
            progress.log = None
        if progress.log is None and progress.transcript is None and self._continuable(request):
            progress.transcript = Continuation(request, self.target.context_window, self.target.terms.dialect)
        if progress.log is None and progress.transcript is None and self._counted(request):
            request, progress.count = streamed(request), TokenCount()
        return request

    async def _tried(
        self,
        task: "asyncio.Task[None]",
        request: EngineRequest,
        progress: ItemProgress,
        on_first_token: Callable[[], None],
    ) -> tuple[Settled, int]:
        """The outcome of a request, which is repeated while that is a Retry and tries are left; and how often it was sent.

        Failures that have a number of tries of their own count by themselves.
        """
        first, longest = BACKOFF_SECONDS
        began, used = clock.monotonic(), Counter[int | None]()
        while True:
            sent_at = clock.monotonic()
            outcome = await self._send(task, request, progress, on_first_token)
            if isinstance(outcome, Done):
                self.probe.answered(request.route, sent_at)
            settled = await self._certain(request.route, outcome) if isinstance(outcome, Doubt) else outcome
            if not isinstance(settled, Retry):
                return settled, used.total() + 1
            used[settled.tries] += 1
            if used[settled.tries] >= (settled.tries or self._attempts):
                return await self._charged(settled, began), used.total()
            await asyncio.sleep(random.uniform(0, min(longest, first * 2.0 ** (used.total() - 1))))  # noqa: S311

    async def _certain(self, route: str, doubt: Doubt) -> Retry | Reject | EngineDown:
        """What a doubtful answer means, once the engine was asked."""
        log.info("engine.doubted", reason=doubt.reason, route=route)
        doubted_at = clock.monotonic()
        await self._permitted()
        failure = await self.probe.failure(doubted_at)
        if isinstance(failure, Retry):
            return replace(failure, busy=True)
        return failure or judged(doubt, route, served=self.probe.serves(route))

    async def _charged(self, failed: Retry, began: float) -> Retry | EngineDown:
        """The last try has failed: the item's error, unless the engine answers nobody. `began`: when it was first sent."""
        if failed.busy or failed.unanswered:
            return failed
        if self.calling:
            await asyncio.sleep(NEWS_SECONDS)  # another answer may say as much as a request of our own
        await self._permitted()
        failure = await self.probe.failure(began)
        return failure if isinstance(failure, EngineDown) else failed

    async def _send(
        self,
        task: "asyncio.Task[None]",
        request: EngineRequest,
        progress: ItemProgress,
        on_first_token: Callable[[], None],
    ) -> Outcome:
        await self._permitted()
        tokens = 0
        followed = progress.log is not None and progress.item.kind == Kind.FLEX  # a yield would repeat its output
        yields = MOST_YIELDS if followed else progress.yields
        progress.note_sent()
        self.ledger.enter(
            task, SentRequest(prompt_estimate(request.body), progress.transcript, yields, count=progress.count)
        )
        try:
            outcome = await self._complete(request, progress, on_first_token)
            if isinstance(outcome, Done):
                tokens = outcome.usage.prompt_tokens + outcome.usage.completion_tokens
            return await self._examined(task, outcome) if isinstance(outcome, EngineDown) else outcome
        except Exception as error:
            log.exception("request.broken")
            return unreadable(error)
        finally:
            progress.engine_seconds += self.ledger.leave(task, tokens)

    async def _permitted(self) -> None:
        """Return when a request may be sent."""
        await self.gate.wait()
        await self._lease_holds()

    async def _lease_holds(self) -> None:
        """Return when the worker's lease holds. To be asked after each await before a request, in which this process may stop."""
        while not self._may_send():  # noqa: ASYNC110  (after a long stop of this process; the next heartbeat aborts this task)
            await asyncio.sleep(LAPSED_SECONDS)

    async def _with_numbers(self, request: EngineRequest, refused: Reject) -> Reject:
        """The refusal of a prompt that is too long, with exact numbers if the engine counts tokens."""
        count = await self._client.count(request)
        message = count and count.problem(context_window.answer_tokens(request))
        text = message or refused.message
        return replace(refused, message=text, reason=OpenAICode.TOO_LONG, kind=ErrorClass.TOO_LONG)

    def _may_freeze(self) -> bool:
        """Whether the scheduler in the engine rules, and not the controller outside."""
        return not self.streams

    def _continuable(self, request: EngineRequest) -> bool:
        able = self.target.terms.dialect.resume is not None
        return able and self.streams and self._continues and resumable(request)

    def _counted(self, request: EngineRequest) -> bool:
        """Whether the request is streamed so that its pace is seen."""
        seen = self.target.terms.dialect.counts_steps or not self._streams_have_usage
        return self.streams and not seen and request.route == CHAT

    async def nudge(self, request: EngineRequest) -> None:
        """Send one synthetic request. Only telemetry shows its outcome."""
        await self._client.complete(request)

    async def _complete(
        self, request: EngineRequest, progress: ItemProgress, on_first_token: Callable[[], None]
    ) -> Outcome:
        transcript, size = progress.transcript, prompt_estimate(request.body)
        if progress.log is not None:
            try:
                begun = progress.item.kind == Kind.RESPONSE
                return await self._client.events(
                    request, progress.log.add, begun=begun, prompt_tokens=size, patient=self._may_freeze
                )
            finally:
                await progress.log.close()
        if progress.count is not None:
            progress.count.received = 0
            answer = await self._client.events(
                request, progress.add_event, begun=False, prompt_tokens=size, patient=self._may_freeze
            )
            if isinstance(answer, Done) and NO_USAGE in answer.mended and self._streams_have_usage:
                self._streams_have_usage = False  # from now on whole answers are asked for
                log.warning("engine.stream_without_usage", url=self._client.url)
            return answer
        if transcript is None:
            return await self._client.complete(request, patient=self._may_freeze)
        if transcript.needs_prompt_ids:
            transcript.prompt_ids = await self._client.tokens_of(request) or []
            await self._lease_holds()
        if not transcript.complete:
            self.resumes += transcript.started
            outcome = await self._client.stream(
                transcript, partial(progress.note_token, on_first_token), patient=self._may_freeze
            )
            if outcome is not None:
                return outcome
        self.resumed_cached_tokens += transcript.resumed_cached
        text = transcript.pieces[0]
        if len(transcript.pieces) > 1:
            whole = await self._client.detokenize(self.target.model, transcript.text_ids)
            text = joined(transcript.pieces, whole or "")
        return transcript.done(text)

    async def _examined(self, task: "asyncio.Task[None]", down: EngineDown) -> EngineDown | Retry | Doubt:
        """EngineDown if the engine is dead, Retry if it lives and has lost only this request, Doubt if it lives and could not
        be reached.

        A refused request waits briefly, because an open request may have killed the engine. If the lost connection of another
        request is being examined at that time, the engine counts as killed by a request.
        """
        if not down.suspect:
            await asyncio.sleep(NEWS_SECONDS)
            killed = self._examining > 0
            if not killed and await self._client.healthy():
                return Doubt(None, down.words)
            return replace(down, suspect=killed)
        self._examining += 1
        try:
            if not await self._client.healthy():
                return down
            self.lost.add(task)
            return Retry(down.reason, words=down.words)
        finally:
            self._examining -= 1
