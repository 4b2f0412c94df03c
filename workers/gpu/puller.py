"""Pulls chunks while there is an allowance and runs their items on the engine; the storer stores what comes back.

    claim loop   keeps a few items ahead of the engine; looks at an empty queue ever less often
    admission    on every event: start items while fewer run than the allowance; a suspect waits until it is alone

Every lease ends by being lost, or in `finish`, which sends whatever has no result back to the queue. So giving work
back only means: start nothing more.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from app import clock
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.engines.outcome import EngineDown, Retry
from app.queue import service as queue
from app.queue.types import HeldLease, Item, Kind, Lease
from app.settings import Settings
from app.states import BatchState
from workers.gpu.item_runner import Caller
from workers.gpu.open_chunk import OpenChunk
from workers.gpu.requests_in_engine import estimate
from workers.gpu.result_writer import DATABASE_PAUSE_SECONDS, ResultWriter
from workers.gpu.stream_log import StreamLogWriter

POLL_SECONDS = 0.01  # first pause between two looks at an empty queue; the setting is the longest
URGENT_EVERY = 4  # this share of the claims looks for near deadlines first
BUSY_SECONDS = 15.0  # an item that a full engine turned away comes back no sooner than half of this
DOWN_SECONDS = 1.0  # what was in an engine when it died rests at least this long
MANY = 1 << 30
CALM_SECONDS = 30.0  # a suspect waits no longer than this for an engine without callers who wait

_WINDING_UP = (BatchState.CANCELLING, BatchState.EXPIRING)
log = structlog.get_logger()


class Puller:
    """One worker's work in hand."""

    def __init__(
        self, settings: Settings, database: Database, caller: Caller, on_engine_down: Callable[[str], None]
    ) -> None:
        self.allowance = 0
        self.yields = 0
        self.wasted_tokens = 0
        self._calm = True
        self._prefill_tokens = MANY
        self._settings = settings
        self._database = database
        self._caller = caller
        self._on_engine_down = on_engine_down
        self._chunks: dict[int, OpenChunk] = {}
        self._storer = ResultWriter(settings, database, self._chunks)
        self._identity: tuple[int, int] | None = None
        self._strays: set[tuple[int, int]] = set()
        self._claims = 0
        self._draining = False
        self._closed_since: float | None = None
        self._suspect_since: float | None = None
        self._claiming = asyncio.Lock()
        caller.on_first_token = self._admit
        self._wake = asyncio.Event()  # the claim loop may have a reason to claim

    def join(self, pool_id: int, worker_id: int) -> None:
        """From now on claim for this pool as this worker."""
        self._identity = (pool_id, worker_id)
        self._strays = set()
        self._wake.set()

    def lose(self) -> None:
        """The worker's lease has lapsed: others may hold its chunks. Abort everything, write nothing."""
        self._identity = None
        for chunk in list(self._chunks.values()):
            self._storer.drop(chunk)

    def allow(self, allowance: int, *, prefill_tokens: int = MANY, surplus: int = 0, calm: bool = True) -> None:
        """Hold at most this many requests in flight. Fewer than now: nothing is started until it fits.

        Of prompts, no more than about `prefill_tokens` are given to the engine at a time. `surplus` requests yield now.
        `calm`: nobody else's request is in the engine, so that it may be tried with a suspect.
        """
        self.allowance, self._calm, self._prefill_tokens = allowance, calm, prefill_tokens
        if surplus:
            self._yield(surplus)
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

    async def slack(self) -> float | None:
        """How much time the most pressed batch of our pool has to spare; see the queue's `slack`."""
        identity = self._identity  # is gone when the lease is lost meanwhile
        if identity is None:
            return None
        async with self._database.relaxed() as conn:
            return await queue.slack(conn, identity[0])

    def heard(self, held: Sequence[HeldLease]) -> None:
        """What the queue says we hold, and how those batches stand: stop what is cancelled, start nothing of what is paused.

        A lease that we do not know, twice in a row, comes of a claim or a finish whose answer was lost. It is ended.
        """
        strays = set()
        for lease in held:
            chunk = self._chunks.get(lease.chunk_id)
            if chunk is None:
                strays.add((lease.chunk_id, lease.token))
                if (lease.chunk_id, lease.token) in self._strays and not self._claiming.locked():
                    self._end_stray(lease)
            elif chunk.lease.token == lease.token and lease.batch != BatchState.OPEN:
                self._halt(chunk, abort=lease.batch in _WINDING_UP)
        self._strays = strays

    def withdraw(self, *, abort: bool) -> None:
        """Hand back what has not begun; what runs comes to its end, or with `abort` is handed back as well.

        Nothing is claimed until `allow` gives an allowance again. Safe to repeat.
        """
        self.allow(0)
        self._give_back()
        for chunk in self._chunks.values():
            if abort:
                chunk.abort()
        self._cancel_paused()

    async def drain(self) -> None:
        """Claim nothing more, let what runs end for `drain_seconds`, store it, hand back the rest."""
        self._draining = True
        self._wake.set()
        async with self._claiming:
            self._give_back()
        tasks = self._cancel_paused()
        if tasks:
            log.info("worker.draining", in_flight=self.in_flight, seconds=self._settings.drain_seconds)
            await asyncio.wait(tasks, timeout=self._settings.drain_seconds)
        for chunk in self._chunks.values():
            chunk.abort()
        deadline = clock.monotonic() + self._settings.lease_seconds
        while self._chunks and clock.monotonic() < deadline:
            self._storer.hurry()
            await asyncio.sleep(0.01)

    def _cancel_paused(self) -> "list[asyncio.Task[None]]":
        """Cancel what is between two tries or has not been sent yet. Returns every task in hand."""
        tasks = [task for chunk in self._chunks.values() for task in chunk.running.values()]
        for task in tasks:
            if task not in self._caller.calling:
                task.cancel()
        return tasks

    @property
    def in_hand(self) -> int:
        """Items started whose outcome is not stored yet."""
        return self.in_flight + sum(len(chunk.results) for chunk in self._chunks.values())

    @property
    def in_flight(self) -> int:
        """Items started and not yet settled, those between two tries included."""
        return sum(len(chunk.running) for chunk in self._chunks.values())

    async def run(self) -> None:
        """Claim and flush until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._claim_loop())
            group.create_task(self._storer.run())

    # ------------------------------------------------------------ claiming

    async def _claim_loop(self) -> None:
        pause = POLL_SECONDS
        while not self._draining:
            if not self._hungry():
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await asyncio.sleep(self._settings.poll_seconds * (1 - self._room()))
                async with self._claiming:
                    found = await self._claim()
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="claim", error=str(error).strip())
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)
                continue
            pause = POLL_SECONDS if found else min(pause * 2, self._settings.poll_seconds)
            if not found:
                await asyncio.sleep(pause)

    def _hungry(self) -> bool:
        """Whether the items in hand may soon not fill the allowance."""
        pending = sum(len(chunk.pending) for chunk in self._chunks.values())
        alone = any(chunk.alone and not chunk.idle for chunk in self._chunks.values())
        wanted = 0 if alone else max(1, self.allowance // 2)
        return self._identity is not None and self.allowance > 0 and pending < wanted

    def _room(self) -> float:
        """The share of the allowance that is free. The less, the later we claim: of a pool's engines the idlest comes first."""
        return max(0.0, 1 - self.in_flight / self.allowance) if self.allowance else 0.0

    async def _claim(self) -> bool:
        identity = self._identity
        if identity is None or self._draining or not self._hungry():
            return False  # since we last looked
        self._claims += 1
        async with self._database.relaxed() as conn:
            lease = None
            if self._claims % URGENT_EVERY == 0:
                lease = await queue.claim(conn, *identity, urgent=True)
            lease = lease or await queue.claim(conn, *identity)
            if lease is None:
                return False
            items = await queue.load(conn, lease)
        if self._identity != identity:
            return False
        if (old := self._chunks.get(lease.chunk_id)) is not None:
            self._storer.drop(old)  # a database crash took our claim back and gave the chunk to us again
        self._take(lease, items)
        return True

    def _take(self, lease: Lease, items: list[Item]) -> None:
        chunk = self._chunks[lease.chunk_id] = OpenChunk.of(lease, items, self._settings.item_attempts)
        how = {"alone": chunk.alone, "split": chunk.split, "given_up": bool(chunk.results)}
        past = {"attempt": lease.attempt, "deaths": lease.deaths, "retries": lease.retries}
        said = {name: value for name, value in (past | how).items() if value}
        log.debug("chunk.claimed", chunk=lease.chunk_id, batch=lease.batch_id, items=len(items), **said)
        if self._draining:
            chunk.give_back()
        self._admit()
        if chunk.idle:
            self._storer.hurry()

    def _end_stray(self, lease: HeldLease) -> None:
        assert self._identity is not None
        log.warning("chunk.stray", chunk=lease.chunk_id, batch=lease.batch_id)
        known = Lease(
            chunk_id=lease.chunk_id,
            token=lease.token,
            worker_id=self._identity[1],
            batch_id=lease.batch_id,
            run=lease.run,
            tenant_id=0,
            lo=0,
            hi=0,
            seqs=None,
            n=lease.n,
            est_tokens=0,
        )
        self._chunks[lease.chunk_id] = OpenChunk(known, deque())
        self._storer.hurry()

    # ------------------------------------------------------------ running

    def _yield(self, surplus: int) -> None:
        leaving = {chunk.running[seq] for chunk in self._chunks.values() for seq in chunk.yielding}
        victims = set(self._caller.ledger.victims(surplus - len(leaving), leaving))
        for chunk in self._chunks.values():
            for seq in [seq for seq, task in chunk.running.items() if task in victims]:
                chunk.park(seq)
        self.yields += len(victims)
        if victims:
            log.info("requests.yielded", requests=len(victims))

    def _admit(self) -> None:
        if self._draining or any(chunk.alone and chunk.running for chunk in self._chunks.values()):
            return
        suspect = None
        for chunk in self._chunks.values():
            if chunk.alone:
                suspect = suspect or (chunk if chunk.pending else None)
                continue
            while chunk.pending and self.in_flight < self.allowance and self._paced(chunk, chunk.pending[0]):
                self._start(chunk, chunk.pending.popleft())
        if suspect is None:
            self._suspect_since = None
        elif self.allowance > 0 and self.in_flight == 0 and self._calm_enough():
            self._start(suspect, suspect.pending.popleft())
        if self._hungry():
            self._wake.set()

    def _paced(self, chunk: OpenChunk, item: Item) -> bool:
        """Whether the engine may get another prompt: the first of all, or one that fits beside those not yet computed."""
        if self._prefill_tokens >= MANY:
            return True
        inside = self._caller.calling
        starting = sum(
            _prompt_tokens(each, each.progress[seq].item)
            for each in self._chunks.values()
            for seq, task in each.running.items()
            if task not in inside and seq in each.progress
        )
        computing = self._caller.ledger.load().prefill_tokens + starting
        return self._prefill_tokens > 0 and (
            not computing or computing + _prompt_tokens(chunk, item) <= self._prefill_tokens
        )

    def _calm_enough(self) -> bool:
        """A suspect may take the engine down: it should not take others' requests along. But it does not wait for ever."""
        now = clock.monotonic()
        if self._suspect_since is None:
            self._suspect_since = now
        return self._calm or now - self._suspect_since >= CALM_SECONDS

    def _start(self, chunk: OpenChunk, item: Item) -> None:
        task = asyncio.create_task(self._serve(chunk, item))
        chunk.start(item, task)
        task.add_done_callback(lambda _: self._ended(chunk, item.seq))

    async def _serve(self, chunk: OpenChunk, item: Item) -> None:
        progress = chunk.progress[item.seq]
        if item.kind in (Kind.RESPONSE, Kind.FLEX) and progress.log is None:
            progress.log = StreamLogWriter(self._database, chunk.lease)
        outcome, tries = await self._caller.call(chunk.running[item.seq], progress, chunk.lease.tenant_id)
        match outcome:
            case EngineDown():
                if outcome.suspect:
                    chunk.suspects.add(item.seq)
                self._engine_down(outcome)
            case Retry() if outcome.busy:
                chunk.delay(BUSY_SECONDS * random.uniform(0.5, 1))  # noqa: S311
            case Retry() if self._draining:
                pass  # its remaining tries are the next worker's
            case Retry() if chunk.lease.retries < self._settings.item_retries:
                chunk.retried.add(item.seq)
            case _:
                chunk.settled(item.seq, outcome, tries)

    def _ended(self, chunk: OpenChunk, seq: int) -> None:
        """A callback of the task, not its `finally`: a task cancelled before its first step runs no line of its own."""
        self.wasted_tokens += chunk.ended(seq)
        self._storer.note()
        if chunk.idle or len(chunk.results) >= self._settings.flush_items:
            self._storer.hurry()
        self._admit()

    def _engine_down(self, outcome: EngineDown) -> None:
        """Abort and hand back everything. If the engine may have died of a request, all that it held are charged."""
        if self.allowance:
            log.warning("engine.down", reason=outcome.reason, in_flight=self.in_flight)
        inside = self._caller.lost | (set(self._caller.calling) if outcome.suspect else set())
        self.allow(0)
        self._on_engine_down(outcome.reason)
        for chunk in self._chunks.values():
            chunk.suspects.update(seq for seq, task in chunk.running.items() if task in inside)
            if chunk.suspects:
                chunk.delay(DOWN_SECONDS)
            self._halt(chunk, abort=True)

    def _halt(self, chunk: OpenChunk, *, abort: bool) -> None:
        self.wasted_tokens += chunk.give_back()
        if abort:
            chunk.abort()
        self._storer.hurry()

    def _give_back(self) -> None:
        for chunk in self._chunks.values():
            self.wasted_tokens += chunk.give_back()
        self._storer.hurry()


def _prompt_tokens(chunk: OpenChunk, item: Item) -> int:
    """Roughly. Of a body in the object store only the chunk's mean is known here, its answer included."""
    return chunk.lease.est_tokens // max(1, chunk.lease.n) if item.stored else estimate(item.body)
