"""Runs the items of claimed chunks on the engine and hands their outcomes to the result writer.

    claimer        claims chunks, so that there are always a few pending items
    admission      starts items while fewer are in flight than the allowance
    result writer  stores results and ends leases

A lease ends by being lost, or in `finish`, which sends every item without a result back to the queue. So to give work back
it is enough to start nothing more.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import structlog

from app import clock, trace_context
from app.db.pool import Database
from app.engines.outcome import EngineDown, Retry, Settled
from app.queue.bodies import BatchSeal
from app.queue.heartbeat import HeartbeatAnswer
from app.queue.types import Item, Kind, Lease
from app.settings import Settings
from app.states import BatchState
from app.usage_counts import UsageCounts
from workers.engine.step_budget import UNLIMITED_TOKENS
from workers.gpu.admission import Admission
from workers.gpu.batch_share import BatchShares
from workers.gpu.chunk_span import ChunkSpan
from workers.gpu.claimer import Claimer
from workers.gpu.ending import first_of
from workers.gpu.item_runner import ItemRunner
from workers.gpu.open_chunk import OpenChunk, OpenChunks
from workers.gpu.rest import Rest
from workers.gpu.result_writer import ResultWriter
from workers.gpu.stream_log import StreamLogWriter
from workers.gpu.tuning import TUNING, WorkerTuning

CLAIM_SECONDS = 2.0  # the longest wait for the answer to a claim when work is handed back
SHARE_SECONDS = 5.0
_WINDING_UP = (BatchState.CANCELLING, BatchState.EXPIRING)
log = structlog.get_logger()


class Puller:
    """The chunks of one worker. `wasted_tokens` counts generated tokens that were lost.

    `on_engine_down` is told when a request finds the engine dead, or of no use to anybody.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        runner: ItemRunner,
        on_engine_down: Callable[[EngineDown], None],
        tuning: WorkerTuning = TUNING,
        rest: Rest | None = None,
    ) -> None:
        self.wasted_tokens = 0
        self._rest = rest or Rest()
        self._settings = settings
        self._tuning = tuning
        self._database = database
        self._runner = runner
        self._on_engine_down = on_engine_down
        self._chunks = OpenChunks()
        self._writer = ResultWriter(settings, database, self._chunks, tuning)
        self._admission = Admission(self._chunks, runner, tuning)
        self._claimer = Claimer(settings, database, self._chunks, self._admission, self._take)
        self._spans = BatchShares(settings.engine_name, settings.trace_item_share)
        self._closed_since: float | None = None

    async def run(self) -> None:
        """Claim and store until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claimer.run())
            group.create_task(self._writer.run())

    # ------------------------------------------------------------ the worker's lease

    def join(self, pool_id: int, worker_id: int, engine_id: int | None = None) -> None:
        """Claim from now on for this pool as this worker. `engine_id`: the engine that results are of; None: not known."""
        self._writer.engine_id = engine_id
        self._claimer.join(pool_id, worker_id)

    def lose(self) -> None:
        """The worker's lease has lapsed, and others may hold its chunks. Abort every request and write nothing."""
        self._claimer.leave()
        self._writer.drop_all()

    def on_heartbeat(self, answer: HeartbeatAnswer) -> None:
        """Act on the leases that the queue counts as ours: abort cancelled batches, pause paused ones, end stray leases. If
        another engine has no work and none is ready, give back the items that we would not start soon.
        """
        for fence in self._claimer.strays(answer.held):
            self._writer.end(fence)
        for lease in answer.held:
            chunk = self._chunks.get(lease.chunk_id)
            if chunk is not None and chunk.lease.token == lease.token and lease.batch != BatchState.OPEN:
                self._close(chunk, abort=lease.batch in _WINDING_UP)
        if answer.scarce:
            self._share()
        self._claimer.on_heartbeat(answer)

    @property
    def idle(self) -> bool:
        """Whether we need work, and found none."""
        return self._claimer.idle

    def on_wake(self) -> None:
        """Work has come: claim now, if we need some."""
        self._rest.stir()
        self._claimer.on_wake()

    # ------------------------------------------------------------ the controller's decision

    @property
    def allowance(self) -> int:
        """Requests that may be in flight."""
        return self._admission.allowance

    @property
    def yields(self) -> int:
        """Requests that have yielded so far."""
        return self._admission.yields

    @property
    def stored(self) -> UsageCounts:
        """What the results that were stored so far used."""
        return self._writer.stored

    def allow(
        self,
        allowance: int,
        *,
        prefill_tokens: int = UNLIMITED_TOKENS,
        surplus: int = 0,
        all_yield: bool = False,
        sync_idle: bool = True,
    ) -> None:
        """Have at most `allowance` requests in flight. If there are more now, none starts until fewer are left.

        The engine gets at most about `prefill_tokens` of prompts at a time. `surplus` requests yield now; with `all_yield`,
        those too that must not yield any more. `sync_idle`: no request of others is in the engine, so a suspect may run.
        """
        self._admission.limit(allowance, prefill_tokens=prefill_tokens, sync_idle=sync_idle)
        if self._chunks:
            self._rest.stir()
        if surplus:
            self._admission.yield_requests(surplus, all_yield=all_yield)
        if allowance > 0:
            self._closed_since = None
            self._runner.gate.set()
            self._admit()
            return
        self._runner.gate.clear()
        now = clock.monotonic()
        if self._closed_since is None:
            self._closed_since = now
        elif now - self._closed_since > self._settings.lease_seconds:
            self._closed_since = now
            self._give_back()  # another engine may have room

    def yield_requests(self, surplus: int) -> None:
        """Take so many requests out of the engine. They keep their tokens and go on later."""
        self._admission.yield_requests(surplus)

    def withdraw(self, *, abort: bool) -> None:
        """Hand back what has not begun. Running items come to their end or, with `abort`, are handed back too.

        Nothing is claimed until `allow` gives an allowance again. It is safe to repeat.
        """
        self.allow(0)
        self._give_back()
        for chunk in self._chunks.values():
            if abort:
                chunk.abort()
        self._cancel_outside_engine()

    async def drain(self, returning: asyncio.Event) -> None:
        """Claim nothing more, let running items end for `drain_seconds`, store their results, and hand back the rest.

        Once `returning` is set, what runs is aborted and handed back at once.
        """
        self._chunks.draining = True
        await first_of(self._claimer.stop(), _soon_after(returning))
        self._give_back()
        tasks = self._cancel_outside_engine()
        if tasks:
            seconds = 0.0 if returning.is_set() else self._settings.drain_seconds
            log.info("worker.draining", in_flight=self.in_flight, seconds=seconds)
            await first_of(asyncio.wait(tasks), returning.wait(), seconds=seconds)
        for chunk in self._chunks.values():
            chunk.abort()
        deadline = clock.monotonic() + self._settings.lease_seconds
        while self._writer.unfinished and clock.monotonic() < deadline:
            self._writer.hurry()
            await asyncio.sleep(0.01)
        self._spans.close()

    def _cancel_outside_engine(self) -> "list[asyncio.Task[None]]":
        """Cancel the items that are not in the engine now. Returns all tasks, those in the engine included."""
        tasks = [task for chunk in self._chunks.values() for task in chunk.running.values()]
        for task in tasks:
            if task not in self._runner.calling:
                task.cancel()
        return tasks

    @property
    def in_hand(self) -> int:
        """Items that have started and whose outcome is not stored."""
        return self.in_flight + sum(len(chunk.results) for chunk in self._chunks.values())

    @property
    def in_engine(self) -> tuple[tuple[int, int], ...]:
        """The items that are in the engine now, by batch id."""
        calling, found = self._runner.calling, Counter[int]()
        for chunk in self._chunks.values():
            found[chunk.lease.batch_id] += sum(task in calling for task in chunk.running.values())
        return tuple(sorted((+found).items()))

    @property
    def in_flight(self) -> int:
        """Items that have started and have no outcome, those between two tries included."""
        return self._chunks.in_flight

    # ------------------------------------------------------------ running

    def _take(self, lease: Lease, items: list[Item], seal: BatchSeal | None) -> None:
        self._rest.stir()
        if (old := self._chunks.get(lease.chunk_id)) is not None:
            self._writer.drop(old)  # a crash of the database lost our claim, and we have claimed the chunk again
        span = ChunkSpan.of(self._spans, lease, items)
        chunk = self._chunks[lease.chunk_id] = OpenChunk.of(lease, items, self._settings.item_attempts, span, seal)
        how = {"alone": chunk.alone, "split": chunk.split, "given_up": bool(chunk.results)}
        past = {"attempt": lease.attempt, "deaths": lease.deaths, "retries": lease.retries}
        notable = {name: value for name, value in (past | how).items() if value}
        log.debug("chunk.claimed", chunk=lease.chunk_id, batch=lease.batch_id, items=len(items), **notable)
        if self._chunks.draining:
            chunk.give_back()
        self._admit()
        if chunk.idle:
            self._writer.hurry()

    def _admit(self) -> None:
        self._admission.admit(self._start)
        self._claimer.wake()

    def _start(self, chunk: OpenChunk, item: Item) -> None:
        task = asyncio.create_task(self._serve(chunk, item))
        chunk.start(item, task)
        task.add_done_callback(lambda _: self._ended(chunk, item.seq))

    async def _serve(self, chunk: OpenChunk, item: Item) -> None:
        progress = chunk.progress[item.seq]
        trace_context.enter(item.traceparent)
        if chunk.span is not None and progress.traceparent is None:
            progress.traceparent = chunk.span.header(item)
        if item.kind in (Kind.RESPONSE, Kind.FLEX) and progress.log is None:
            progress.log = StreamLogWriter(self._database, chunk.lease, chunk.seal)
        task = chunk.running[item.seq]
        outcome, tries = await self._runner.run(task, progress, chunk.lease.tenant_id, self._admit)
        back = not self._handled(chunk, item, outcome, tries)
        if back and chunk.span is not None:
            chunk.span.sent_back(item, progress.sent_at, outcome, tries)

    def _handled(self, chunk: OpenChunk, item: Item, outcome: Settled, tries: int) -> bool:
        """Act on an outcome. False: the item goes back to the queue."""
        match outcome:
            case EngineDown(refusal=refusal) if refusal is not None:
                self._engine_unusable(outcome)
            case EngineDown():
                if outcome.suspect:
                    chunk.suspects.add(item.seq)
                self._engine_down(outcome)
            case Retry() if outcome.busy:
                chunk.delay(self._tuning.full_engine_seconds * random.uniform(0.5, 1))  # noqa: S311
            case Retry() if self._chunks.draining:
                pass  # the next worker has its remaining tries
            case Retry(tries=None) if chunk.lease.retries < self._settings.item_retries:
                chunk.retried.add(item.seq)
            case _:
                chunk.settled(item.seq, outcome, tries)
                return True
        return False

    def _ended(self, chunk: OpenChunk, seq: int) -> None:
        """A callback of the task and not its `finally`, because a task cancelled before its first step runs no line."""
        self.wasted_tokens += chunk.ended(seq)
        self._writer.note()
        if chunk.idle or len(chunk.results) >= self._settings.flush_items:
            self._writer.hurry()
        self._admit()

    def _engine_down(self, outcome: EngineDown) -> None:
        """Abort and hand back everything. If a request may have killed the engine, all requests in it are charged."""
        if self.allowance:
            log.warning("engine.down", reason=outcome.reason, in_flight=self.in_flight)
        in_engine = self._runner.lost | (set(self._runner.calling) if outcome.suspect else set())
        self.allow(0)
        self._on_engine_down(outcome)
        for chunk in self._chunks.values():
            chunk.suspects.update(seq for seq, task in chunk.running.items() if task in in_engine)
            if chunk.suspects:
                chunk.delay(self._tuning.engine_death_seconds)
            self._close(chunk, abort=True)

    def _engine_unusable(self, outcome: EngineDown) -> None:
        """Start nothing more, and hand back what is not in the engine, uncharged. What runs may come to its end."""
        if self.allowance:
            log.warning("engine.unusable", reason=outcome.reason, in_flight=self.in_flight)
        self.allow(0)
        self._on_engine_down(outcome)
        self._give_back()
        self._cancel_outside_engine()

    def _close(self, chunk: OpenChunk, *, abort: bool) -> None:
        """Start nothing more of the chunk; with `abort`, end its requests too."""
        self.wasted_tokens += chunk.give_back()
        if abort:
            chunk.abort()
        self._writer.hurry()

    def _share(self) -> None:
        """Keep as many waiting items as we started lately: the others would wait longer than SHARE_SECONDS."""
        self.wasted_tokens += self._chunks.keep(self._admission.started_within(SHARE_SECONDS))
        self._writer.hurry()

    def _give_back(self) -> None:
        for chunk in self._chunks.values():
            self.wasted_tokens += chunk.give_back()
        self._writer.hurry()


async def _soon_after(returning: asyncio.Event) -> None:
    await returning.wait()
    await asyncio.sleep(CLAIM_SECONDS)
