"""Pulls chunks while there is an allowance, runs their items on the engine, and stores what comes back.

    claim loop   keeps a few items ahead of the engine; asks less often while the queue is empty
    admission    on every event: start items while fewer run than the allowance; a suspect waits until it is alone
    flush loop   stores results, finishes the chunks that are through

Every lease ends by being lost, or in `finish`, which sends whatever has no result back to the queue. So giving work
back only means: start nothing more.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

import psycopg
import structlog

from app import clock
from app.db.pool import Database
from app.engines.outcome import EngineDown, Retry
from app.queue import service as queue
from app.queue.types import Item
from app.settings import Settings
from workers.gpu.caller import Caller
from workers.gpu.chunk import OpenChunk

POLL_SECONDS = (0.02, 0.5)  # shortest and longest pause between two looks at an empty queue
DATABASE_PAUSE_SECONDS = 0.5
BUSY_SECONDS = 15.0  # an item that a full engine turned away comes back no sooner than half of this
DOWN_SECONDS = (1.0, 60.0)  # first and longest backoff of a chunk that was in an engine when it died
FLUSH_ROWS = 64

log = structlog.get_logger()


class Puller:
    """One worker's work in hand."""

    def __init__(
        self, settings: Settings, database: Database, caller: Caller, on_engine_down: Callable[[str], None]
    ) -> None:
        self.allowance = 0
        self.must_rejoin = asyncio.Event()
        self._settings = settings
        self._database = database
        self._caller = caller
        self._on_engine_down = on_engine_down
        self._chunks: dict[int, OpenChunk] = {}
        self._identity: tuple[int, int] | None = None
        self._draining = False
        self._doubtful = False
        self._closed_since: float | None = None
        self._claiming = asyncio.Lock()
        self._wake = asyncio.Event()  # the claim loop may have a reason to claim
        self._news = asyncio.Event()  # the flush loop has something to do
        self._due = asyncio.Event()  # and it should not wait for more

    # ------------------------------------------------------------ what the worker tells

    def join(self, pool_id: int, worker_id: int) -> None:
        """From now on claim for this pool as this worker."""
        self._identity = (pool_id, worker_id)
        self._doubtful = False
        self.must_rejoin.clear()
        self._wake.set()

    def lose(self) -> None:
        """The worker's lease has lapsed: others may hold its chunks. Abort everything, write nothing."""
        self._identity = None
        for chunk in list(self._chunks.values()):
            self._drop(chunk)

    def allow(self, allowance: int) -> None:
        """Hold at most this many requests in flight. Fewer than now: nothing is started until it fits."""
        self.allowance = allowance
        if allowance > 0:
            self._closed_since = None
            self._caller.gate.set()
            self._admit()
            return
        self._caller.gate.clear()
        now = clock.monotonic()
        if self._closed_since is None:
            self._closed_since = now
        elif now - self._closed_since > self._settings.lease_seconds:
            self._closed_since = now
            self._give_back()  # another engine may have room

    async def drain(self) -> None:
        """Claim nothing more, let what runs end for `drain_seconds`, store it, hand back the rest."""
        self._draining = True
        self._wake.set()
        async with self._claiming:
            self._give_back()
        tasks = [task for chunk in self._chunks.values() for task in chunk.running.values()]
        for task in tasks:
            if task not in self._caller.calling:
                task.cancel()
        if tasks:
            log.info("worker.draining", in_flight=self.in_flight, seconds=self._settings.drain_seconds)
            await asyncio.wait(tasks, timeout=self._settings.drain_seconds)
        for chunk in self._chunks.values():
            chunk.abort()
        deadline = clock.monotonic() + self._settings.lease_seconds
        while self._chunks and clock.monotonic() < deadline:
            self._hurry()
            await asyncio.sleep(0.01)

    @property
    def in_flight(self) -> int:
        """Items started and not yet settled, those between two tries included."""
        return sum(len(chunk.running) for chunk in self._chunks.values())

    async def run(self) -> None:
        """Claim and flush until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim_loop())
            group.create_task(self._flush_loop())

    # ------------------------------------------------------------ claiming

    async def _claim_loop(self) -> None:
        pause = POLL_SECONDS[0]
        while not self._draining:
            if not self._hungry():
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                async with self._claiming:
                    found = await self._claim()
            except psycopg.OperationalError as error:
                log.warning("database.unavailable", verb="claim", error=str(error).strip())
                self._doubt()
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)
                continue
            pause = POLL_SECONDS[0] if found else min(pause * 2, POLL_SECONDS[1])
            if not found:
                await asyncio.sleep(pause)

    def _hungry(self) -> bool:
        """Whether the items in hand may soon not fill the allowance."""
        pending = sum(len(chunk.pending) for chunk in self._chunks.values())
        alone = any(chunk.alone and not chunk.idle for chunk in self._chunks.values())
        wanted = 0 if alone else max(1, self.allowance // 2)
        return self._identity is not None and self.allowance > 0 and pending < wanted

    def _doubt(self) -> None:
        """A claim without an answer may have leased us a chunk that we do not know, and our heartbeat would hold it.

        So we claim no more under this identity, and take a new one as soon as the chunks in hand are through.
        """
        self._identity = None
        self._doubtful = True
        self._hurry()

    async def _claim(self) -> bool:
        identity = self._identity
        assert identity is not None
        async with self._database.relaxed() as conn:
            lease = await queue.claim(conn, *identity)
            if lease is None:
                return False
            items = await queue.load(conn, lease)
        if self._identity != identity:
            return False
        if (old := self._chunks.get(lease.chunk_id)) is not None:
            self._drop(old)  # a database crash took our claim back and gave the chunk to us again
        chunk = self._chunks[lease.chunk_id] = OpenChunk.of(lease, items, self._settings.item_attempts)
        how = {"alone": chunk.alone, "split": chunk.split, "given_up": bool(chunk.results)} if lease.attempt else {}
        log.info(
            "chunk.claimed", chunk=lease.chunk_id, batch=lease.batch_id, items=len(items), attempt=lease.attempt, **how
        )
        if self._draining:
            chunk.give_back()
        self._admit()
        self._hurry()
        return True

    # ------------------------------------------------------------ running

    def _admit(self) -> None:
        room = self.allowance - self.in_flight if not self._draining else 0
        for chunk in self._chunks.values():
            if chunk.alone and self.in_flight:
                continue
            while chunk.pending and room > 0:
                item = chunk.pending.popleft()
                self._start(chunk, item)
                room -= 1
        if self._hungry():
            self._wake.set()

    def _start(self, chunk: OpenChunk, item: Item) -> None:
        task = chunk.running[item.seq] = asyncio.create_task(self._serve(chunk, item))
        task.add_done_callback(lambda _: self._ended(chunk, item.seq))

    async def _serve(self, chunk: OpenChunk, item: Item) -> None:
        outcome, tries = await self._caller.call(chunk.running[item.seq], item, chunk.lease.tenant_id)
        match outcome:
            case EngineDown():
                self._engine_down(outcome, retried=tries > 1)
            case Retry() if outcome.busy:
                chunk.delay(BUSY_SECONDS * random.uniform(0.5, 1))  # noqa: S311
            case Retry() if self._draining:
                pass  # its remaining tries are the next worker's
            case _:
                chunk.settled(item.seq, outcome, tries)

    def _ended(self, chunk: OpenChunk, seq: int) -> None:
        """A callback of the task, not its `finally`: a task cancelled before its first step runs no line of its own."""
        chunk.running.pop(seq, None)
        self._news.set()
        if chunk.idle or len(chunk.results) >= self._settings.flush_items:
            self._hurry()
        self._admit()

    def _engine_down(self, outcome: EngineDown, *, retried: bool) -> None:
        """Abort and hand back everything. If the engine may have died of a request, all that it held are charged."""
        if self.allowance:
            log.warning("engine.down", reason=outcome.reason, in_flight=self.in_flight)
        self.allow(0)
        self._on_engine_down(outcome.reason)
        for chunk in self._chunks.values():
            charge = bool(chunk.running) and (outcome.suspect or retried)
            first, longest = DOWN_SECONDS
            backoff = min(first * 2**chunk.lease.attempt, longest) if charge else 0.0
            chunk.give_back(backoff_seconds=backoff, charge=charge)
            chunk.abort()
        self._hurry()

    # ------------------------------------------------------------ storing

    def _hurry(self) -> None:
        self._due.set()
        self._news.set()

    async def _flush_loop(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.flush_seconds):
                    await self._due.wait()
            self._due.clear()
            try:
                for chunk in list(self._chunks.values()):
                    await self._store(chunk)
                if self._doubtful and not self._chunks:
                    self.must_rejoin.set()
            except psycopg.OperationalError as error:
                log.warning("database.unavailable", verb="flush", error=str(error).strip())
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)
                self._hurry()

    async def _store(self, chunk: OpenChunk) -> None:
        """Flush the chunk's results; finish it if it is through; drop it if its lease is lost."""
        while results := chunk.results[:FLUSH_ROWS]:
            async with self._database.durable() as conn:
                held = await queue.flush(conn, chunk.lease, results)
            if not held:
                log.warning("chunk.lost", chunk=chunk.lease.chunk_id, results=len(results))
                return self._drop(chunk)
            del chunk.results[: len(results)]
        if not chunk.idle or self._chunks.get(chunk.lease.chunk_id) is not chunk:
            return None
        async with self._database.durable() as conn:
            done = await queue.finish(
                conn,
                chunk.lease,
                backoff_seconds=chunk.backoff_seconds,
                charge=chunk.charge,
                split=chunk.split,
            )
        self._forget(chunk)
        returned = None if done is None else done.returned
        log.info("chunk.finished", chunk=chunk.lease.chunk_id, held=done is not None, returned=returned)
        return None

    def _give_back(self) -> None:
        for chunk in self._chunks.values():
            chunk.give_back()
        self._hurry()

    def _drop(self, chunk: OpenChunk) -> None:
        """Forget a chunk whose lease is lost, and abort its requests."""
        chunk.pending.clear()
        chunk.results.clear()
        chunk.abort()
        self._forget(chunk)

    def _forget(self, chunk: OpenChunk) -> None:
        """Meanwhile the same chunk may be ours under a newer lease; that one stays."""
        if self._chunks.get(chunk.lease.chunk_id) is chunk:
            del self._chunks[chunk.lease.chunk_id]
