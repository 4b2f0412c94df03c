"""Random sequences of the queue's verbs, drawn by Hypothesis, against a model in Python, with invariants after each verb."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from app.db.pool import Connection
from app.db.pooled_connection import PooledConnection
from app.queue import batch_state, chunk_sweeps, expiry, order_deltas, order_drift, reaping, service, settling
from app.queue.chunking import cut
from app.queue.ingest import NewBatch
from app.queue.types import Lease, Result
from app.states import BATCH, BatchState, ChunkState
from tests import timing
from tests.databases import Ring
from tests.queue import support
from tests.sets import drawn

WALKS = drawn(8, 100, stateful_step_count=40, phases=(Phase.generate, Phase.shrink))
FINAL = BATCH.final()
WINDING_UP = (BatchState.CANCELLING, BatchState.EXPIRING)
ENDS = frozenset(t.verb for t in BATCH.transitions if t.target in FINAL)
# The contents of the tables in one statement: lists of rows, which are lists.
EVERYTHING = "select " + ", ".join(
    f"(select coalesce(jsonb_agg(jsonb_build_array({columns})), '[]') from {table})"
    for table, columns in (
        ("item_result", "batch_id, run, seq, ok"),
        (
            "chunk",
            """batch_id, run, state, lo, hi, to_jsonb(seqs), n, est_tokens, done, failed, tenant_id, pool_id,
               chunk_id, token, worker_id""",
        ),
        ("batch_delta", "batch_id, ok, failed"),
        ("batch", "batch_id, state, run, total, ok, failed, finalized_at is not null"),
        ("sched", "pool_id, tenant_id, ready, inflight_tokens"),
        ("sched_delta", "pool_id, tenant_id, est_tokens"),
    )
)
PICK = st.integers(0, 1_000)
BITS = st.integers(0, 255)
T = TypeVar("T")


@dataclass(frozen=True)
class Verb:
    """A step of the walk: how often it is drawn, when it is possible, and its arguments."""

    weight: int
    when: Callable[["Walk"], bool]
    arguments: dict[str, st.SearchStrategy[Any]]


VERBS: dict[str, Verb] = {}


def verb(weight: int, when: Callable[["Walk"], Any] = lambda _: True, **arguments: st.SearchStrategy[Any]) -> Any:
    """Register a step of the walk. Hypothesis disables its own rules at random, so that most walks would reach little."""

    def note(method: Callable[..., None]) -> Callable[..., None]:
        VERBS[method.__name__] = Verb(weight, when, arguments)
        return method

    return note


def picked(bits: int, seqs: list[int]) -> list[int]:
    """The items whose bit is set."""
    return [seq for place, seq in enumerate(seqs) if bits >> place % 8 & 1]


@dataclass
class Known:
    """The model's state of a batch."""

    batch: NewBatch
    tokens: list[int]
    state: BatchState = BatchState.OPEN
    run: int = 1
    ended: Counter[int] = field(default_factory=Counter)  # how often each run became final


@dataclass
class Hand:
    """A lease, its items in leased order, and those of them without a result when they were loaded."""

    lease: Lease
    items: list[int]
    loaded: list[int]
    reaped: bool = False


class Walk(RuleBasedStateMachine):
    """Two tenants, two pools, one connection; `visited` counts over all walks."""

    url: str
    runner: asyncio.Runner
    visited: ClassVar[Counter[str]] = Counter()
    verbs: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Known] = {}
        self.results: dict[tuple[int, int, int], int] = {}  # (batch, run, seq): ok
        self.alive: list[Hand] = []  # not finished and not reaped
        self.lost: list[Hand] = []
        self.workers: dict[int, int] = {}  # id: pool; those that are killed are in `killed`
        self.workers_pool: dict[int, int] = {}  # of all workers, including deleted ones
        self.killed: set[int] = set()
        self.may: frozenset[str] = frozenset()  # the transitions that the current verb may cause
        self.sound = True
        self.conn: Connection

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine. After a failure the final check is skipped."""
        try:
            return self.runner.run(work)
        except BaseException:
            self.sound = False
            raise

    @initialize()
    def begin(self) -> None:
        self.do(self._begin())

    async def _begin(self) -> None:
        self.conn = await PooledConnection.connect(self.url, autocommit=True, options="-c synchronous_commit=off")
        await support.clear(self.conn)
        self.tenants = [
            await support.make_tenant(self.conn, "light", 1),
            await support.make_tenant(self.conn, "heavy", 3),
        ]
        self.pools = [await support.make_pool(self.conn, "one"), await support.make_pool(self.conn, "two")]

        for tenant, items in enumerate((9, 2)):
            await self._submit(tenant, 0, items, 4, None, soon=tenant == 0)

    @rule(data=st.data())
    def turn(self, data: st.DataObject) -> None:
        possible = [name for name, verb in VERBS.items() if verb.when(self) for _ in range(verb.weight)]
        name = data.draw(st.sampled_from(possible), label="verb")
        arguments = {key: data.draw(strategy, label=key) for key, strategy in VERBS[name].arguments.items()}
        self.verbs[name] += 1
        getattr(self, name)(**arguments)

    # ------------------------------------------------------------ a caller's verbs

    @verb(
        2,
        when=lambda self: sum(known.state not in FINAL for known in self.known.values()) < 4,
        tenant=st.integers(0, 1),
        pool=st.integers(0, 1),
        items=st.integers(1, 8),
        size=st.integers(1, 5),
        groups=st.sampled_from([None, 2, 3]),
        soon=st.booleans(),
    )
    def submit(self, tenant: int, pool: int, items: int, size: int, groups: int | None, soon: bool) -> None:
        self.do(self._submit(tenant, pool, items, size, groups, soon))

    async def _submit(self, tenant: int, pool: int, items: int, size: int, groups: int | None, soon: bool) -> None:
        keys = None if groups is None else [seq % groups for seq in range(items)]
        tokens = [10 * (1 + seq % 3) for seq in range(items)]
        seconds = 300 if soon else 86_400
        async with self.conn.transaction():
            batch = await support.new_batch(
                self.conn, self.tenants[tenant], self.pools[pool], items, deadline_seconds=seconds, expires=soon
            )
            assert await support.put(self.conn, batch, tokens, max_items=size, keys=keys) == 1
        self.known[batch.batch_id] = Known(batch, tokens)

    @verb(2, when=lambda self: self.known, which=PICK, verb=st.sampled_from(["pause", "resume", "cancel"]))
    def change_state(self, which: int, verb: str) -> None:
        self.do(self._change_state(self._batch(which), verb))

    async def _change_state(self, known: Known, verb: str) -> None:
        sources = next(t.sources for t in BATCH.transitions if t.verb == verb)
        self.may = frozenset({verb}) | ENDS
        async with self.conn.transaction():
            moved = await batch_state.transition(self.conn, verb, known.batch.tenant_id, known.batch.request_id)
            assert (moved is not None) == (known.state in sources)
            if moved is not None and verb == "cancel":
                self._note_ends(await settling.finalise(self.conn, [moved[0]]))

    @verb(
        3,
        when=lambda self: self._ended(),
        which=PICK,
        size=st.integers(1, 5),
        pool=st.integers(0, 1),
    )
    def retry(self, which: int, size: int, pool: int) -> None:
        ended = self._ended()
        self.do(self._retry(ended[which % len(ended)], size, self.pools[pool]))

    async def _retry(self, known: Known, size: int, pool: int) -> None:
        left = [seq for seq in range(known.batch.total) if seq not in self._answered(known)]
        self.may = frozenset({"retry"})
        async with self.conn.transaction():
            who = (known.batch.tenant_id, known.batch.request_id)
            assert await batch_state.reopen(self.conn, *who, of_run=known.run - 1) is None
            batch = await batch_state.reopen(self.conn, *who, of_run=known.run)
            assert (batch is not None) == bool(left)
            if batch is None:
                return
            [(seqs, tokens)] = (await batch_state.unanswered(self.conn, batch.batch_id)).values()
            assert seqs == left
            cuts = cut(tokens, max_tokens=16_000, max_items=size, seqs=seqs)
            await batch_state.requeue(self.conn, batch, known.batch.tenant_id, pool, cuts)
        assert batch.run == known.run + 1
        known.run = batch.run

    # ------------------------------------------------------------ a worker's verbs

    @verb(
        8,
        when=lambda self: self.known,
        pool=st.integers(0, 1),
        fresh=st.booleans(),
        urgent=st.sampled_from([False, False, True]),
    )
    def claim(self, pool: int, fresh: bool, urgent: bool) -> None:
        self.do(self._claim(self.pools[pool], fresh, urgent))

    async def _claim(self, pool: int, fresh: bool, urgent: bool) -> bool:
        mine = [worker for worker, of in self.workers.items() if of == pool and worker not in self.killed]
        if fresh or not mine:
            mine = [await service.register_worker(self.conn, pool_id=pool, host="test", pid=1, lease_seconds=3600)]
            self.workers[mine[0]] = self.workers_pool[mine[0]] = pool
        waiting = await self._rows("select count(*) from chunk where state = 'ready' and pool_id = %s", pool)
        lease = await support.claim(self.conn, pool, mine[-1], urgent=urgent)
        if not urgent:
            assert (lease is not None) == (waiting[0][0] > 0), "work is waiting, and a claim finds nothing"
        if lease is None:
            return False
        known = self.known[lease.batch_id]
        items = lease.seqs or list(range(lease.lo, lease.hi + 1))
        loaded = [item.seq for item in await service.load(self.conn, lease)]
        stored = {seq for batch, run, seq in self.results if (batch, run) == (lease.batch_id, lease.run)}
        expected = [seq for seq in items if seq not in stored] if known.state == BatchState.OPEN else []
        assert loaded == expected, "not exactly the remaining items of an open batch"
        assert not self._answered(known) & set(loaded), "an answered item is leased again"
        assert known.state not in FINAL
        assert len(items) == lease.n
        self.alive.append(Hand(lease, items, loaded))
        self.visited["claimed again" if lease.attempt else "claimed urgently" if urgent else "claimed"] += 1
        return True

    @verb(6, when=lambda self: self.alive, which=PICK, bits=BITS, good=BITS, twice=st.booleans())
    def flush(self, which: int, bits: int, good: int, twice: bool) -> None:
        hand = self.alive[which % len(self.alive)]
        for _ in range(1 + twice):
            self.do(self._flush(hand, picked(bits, hand.loaded), good))
            good ^= 255 * twice  # the second time with the opposite outcomes

    async def _flush(self, hand: Hand, seqs: list[int], good: int) -> None:
        oks = set(picked(good, hand.loaded))
        assert await service.flush(self.conn, hand.lease, [self._result(seq, seq in oks) for seq in seqs])
        for seq in seqs:
            self.results.setdefault((hand.lease.batch_id, hand.lease.run, seq), int(seq in oks))

    @verb(
        5,
        when=lambda self: self.alive,
        which=PICK,
        good=st.sampled_from([None, 0, 0, 170, 255]),
        suspects=BITS,
        retried=BITS,
        split=st.booleans(),
        rest=st.booleans(),
    )
    def finish(self, which: int, good: int | None, suspects: int, retried: int, split: bool, rest: bool) -> None:
        hand = self.alive[which % len(self.alive)]
        if good is not None:  # flush results of all items first
            self.do(self._flush(hand, hand.loaded, good))
        marks = (picked(suspects & retried, hand.items), picked(retried, hand.items))
        self.do(self._finish(hand, *marks, split=split, seconds=100.0 * rest))

    async def _finish(
        self, hand: Hand, suspects: list[int], retried: list[int], *, split: bool, seconds: float
    ) -> None:
        lease = hand.lease
        missing = [seq for seq in hand.items if (lease.batch_id, lease.run, seq) not in self.results]
        finished = await service.finish(
            self.conn, lease, backoff_seconds=seconds, suspects=suspects, retried=retried, retry_seconds=50, split=split
        )
        assert finished is not None
        assert (finished.done, finished.returned) == (lease.n - len(missing), len(missing))
        self.alive.remove(hand)
        self.lost.append(hand)
        self.visited["given back" if missing else "finished"] += 1

    @verb(2, when=lambda self: self.lost, which=PICK, bits=BITS, good=BITS)
    def write_late(self, which: int, bits: int, good: int) -> None:
        ended = {hand.lease.chunk_id for hand in self.lost if not hand.reaped}
        dangerous = [hand for hand in self.lost if hand.lease.chunk_id not in ended]  # the chunk may still exist
        hands = dangerous or self.lost
        self.do(self._write_late(hands[which % len(hands)], bits, good))

    async def _write_late(self, hand: Hand, bits: int, good: int) -> None:
        """A worker that has lost or ended its lease writes. Its chunk may have another lease by now."""
        results = [self._result(seq, bool(good >> seq % 8 & 1)) for seq in picked(bits | 1, hand.items)]
        assert not await service.flush(self.conn, hand.lease, results)
        assert await service.finish(self.conn, hand.lease) is None
        self.visited["written too late"] += 1
        if hand.reaped and await self._rows("select from chunk where chunk_id = %s", hand.lease.chunk_id):
            self.visited["written too late, to a chunk that is still there"] += 1

    @verb(
        4, when=lambda self: self._holders(), which=PICK, bits=BITS, then=st.sampled_from(["", "reap", "reap", "heir"])
    )
    def kill(self, which: int, bits: int, then: str) -> None:
        """A worker is lost after some of its results were stored. It may come back when another worker has its chunk."""
        holders = self._holders()
        self.do(self._kill(holders[which % len(holders)], bits, then))

    async def _kill(self, worker: int, bits: int, then: str) -> None:
        mine = [hand for hand in self.alive if hand.lease.worker_id == worker]
        await self._flush(mine[0], picked(bits, mine[0].loaded), bits)
        lapse = "update worker set lease_until = now() - interval '1 second' where worker_id = %s returning 1"
        assert await self._rows(lapse, worker) == [(1,)]
        self.killed.add(worker)
        assert await support.beat(self.conn, worker, 3600) is None, "a lapsed lease is renewed"
        if then:
            await self._reap()
        if then == "heir":
            while await self._claim(self.workers_pool[worker], fresh=False, urgent=False):
                if self.alive[-1].lease.chunk_id == mine[0].lease.chunk_id:
                    break
        if then:
            await self._write_late(mine[0], 255, bits)

    @verb(1, when=lambda self: self.workers, which=PICK)
    def heartbeat(self, which: int) -> None:
        worker = sorted(self.workers)[which % len(self.workers)]
        held = self.do(support.beat(self.conn, worker, 3600))
        assert (held is None) == (worker in self.killed), "a lapsed lease is renewed, or a valid one is not"
        if held is not None:
            mine = {hand.lease.chunk_id: hand.lease.token for hand in self.alive if hand.lease.worker_id == worker}
            assert {one.chunk_id: one.token for one in held} == mine
            assert all(one.batch == self.known[one.batch_id].state for one in held)

    @verb(1, when=lambda self: self.workers, which=PICK)
    def retire(self, which: int) -> None:
        worker = sorted(self.workers)[which % len(self.workers)]
        self.do(service.retire_worker(self.conn, worker))
        if all(hand.lease.worker_id != worker for hand in self.alive):
            del self.workers[worker]
            self.killed.discard(worker)

    # ------------------------------------------------------------ the steward's verbs

    @verb(4, when=lambda self: self.killed)
    def reap(self) -> None:
        self.do(self._reap())

    async def _reap(self) -> None:
        gone = [hand for hand in self.alive if hand.lease.worker_id in self.killed]
        assert await reaping.reap(self.conn) == (len(self.killed), len(gone))
        for hand in gone:
            hand.reaped = True
        self.lost += gone
        self.alive = [hand for hand in self.alive if hand not in gone]
        self.workers = {worker: pool for worker, pool in self.workers.items() if worker not in self.killed}
        self.killed = set()
        self.visited["reaped"] += len(gone)

    @verb(3, time_passes=st.booleans())
    def promote(self, time_passes: bool) -> None:
        if time_passes:
            self.do(self._rest_is_over())
        self.do(chunk_sweeps.promote(self.conn))

    async def _rest_is_over(self) -> None:
        await self.conn.execute("update chunk set not_before = now() - interval '1 second' where state = 'delayed'")

    @verb(1, when=lambda self: self.known, which=PICK)
    def expire(self, which: int) -> None:
        self.do(self._expire(self._batch(which)))

    async def _expire(self, known: Known) -> None:
        over = (
            "update batch set expires_at = now() - interval '1 second' where batch_id = %s and expires_at is not null"
        )
        await self.conn.execute(over, (known.batch.batch_id,))
        self.may = frozenset({"expire"})
        await expiry.expire(self.conn)

    @verb(3)
    def sweep(self) -> None:
        self.do(chunk_sweeps.sweep(self.conn))

    @verb(3)
    def settle(self) -> None:
        self.do(self._settle())

    async def _settle(self) -> None:
        self.may = ENDS
        async with self.conn.transaction():
            settled, *_ = await settling.settle(self.conn)
            self._note_ends(settled)
        stuck = await self._rows(
            """select batch_id, state from batch b where finalized_at is null
               and not exists (select from chunk c where c.batch_id = b.batch_id)"""
        )
        assert stuck == [], "a batch without work does not end"

    @verb(3)
    def fold(self) -> None:
        self.do(order_deltas.fold(self.conn))

    @verb(1)
    def recompute(self) -> None:
        self.do(self._recompute())

    async def _recompute(self) -> None:
        async with self.conn.transaction():
            assert (await order_drift.recompute(self.conn)).drifts == []

    # ------------------------------------------------------------ invariants

    @invariant()
    def invariants_hold(self) -> None:
        if self.known:
            self.do(self._check())
        self.may = frozenset()

    async def _check(self) -> None:
        [(stored, chunks, deltas, batches, caches, ended)] = await self._rows(EVERYTHING)
        assert {tuple(row[:3]): row[3] for row in stored} == self.results, (
            "the stored results are not the accepted ones"
        )
        assert len(batches) == len(self.known)
        for batch_id, state, run, total, ok, failed, final in batches:
            known = self.known[batch_id]
            assert run == known.run
            self._check_move(known, BatchState(state))
            mine = [chunk for chunk in chunks if chunk[0] == batch_id]
            counts = [(row[1], row[2]) for row in deltas if row[0] == batch_id] + [(c[8], c[9]) for c in mine]
            assert final == (known.state in FINAL)
            assert not (final and counts), "a final batch has chunks or uncounted results"
            live = (ok + sum(one[0] for one in counts), failed + sum(one[1] for one in counts))
            self._check_items(known, mine, live, total)
        leased = sorted((c[12], c[13], c[14]) for c in chunks if c[2] == ChunkState.LEASED)
        assert leased == sorted((h.lease.chunk_id, h.lease.token, h.lease.worker_id) for h in self.alive)
        self._check_caches(chunks, ended, caches)

    def _check_move(self, known: Known, state: BatchState) -> None:
        """The state changes only along the transitions that the last verb may cause, and each run ends once."""
        reachable, states = set(), {known.state}
        while states - reachable:
            reachable |= states
            states = {t.target for t in BATCH.transitions for s in reachable if s in t.sources and t.verb in self.may}
        assert state in reachable, f"{known.state} became {state} by {set(self.may)}"
        if state != known.state:
            self.visited[f"→ {state}"] += 1
        known.state = state
        assert known.ended == Counter(range(1, known.run + (state in FINAL))), "a run ended twice or never"

    def _check_items(self, known: Known, chunks: list[Any], live: tuple[int, int], total: int) -> None:
        answered = self._answered(known)
        failed = {s for (b, run, s), ok in self.results.items() if (b, run, ok) == (known.batch.batch_id, known.run, 0)}
        assert live == (len(answered), len(failed)), "progress counts an item twice, or not at all"
        seen: set[int] = set()
        for _, run, _, lo, hi, seqs, n, est_tokens, *_ in chunks:
            items = set(seqs or range(lo, hi + 1))
            assert run == known.run
            assert len(items) == n
            assert est_tokens == sum(known.tokens[seq] for seq in items)
            assert not items & seen, "an item is in two chunks"
            seen |= items
        still = seen - answered - failed
        assert not answered & failed
        if known.state in (*FINAL, *WINDING_UP):
            assert len(answered) + len(failed) + len(still) <= total
        else:
            assert still == set(range(total)) - answered - failed, "an item is lost"

    def _check_caches(self, chunks: list[Any], ended: list[Any], caches: list[Any]) -> None:
        ready: Counter[tuple[int, int]] = Counter()
        tokens: Counter[tuple[int, int]] = Counter()
        for chunk in chunks:
            place = (chunk[11], chunk[10])
            ready[place] += chunk[2] == ChunkState.READY
            tokens[place] += chunk[7] * (chunk[2] == ChunkState.LEASED)
        for pool, tenant, est_tokens in ended:
            tokens[pool, tenant] += est_tokens
        for pool, tenant, cached_ready, cached_tokens in caches:
            assert (cached_ready, cached_tokens) == (ready.pop((pool, tenant), 0), tokens.pop((pool, tenant), 0))
        assert not ready, "chunks without a place in the fair order"

    # ------------------------------------------------------------ the end

    def teardown(self) -> None:
        """After any walk: end all leases, then every batch can be run to its end."""
        try:
            if self.sound and self.known:
                self.do(self._end())
        finally:
            self.runner.run(self.conn.close())

    async def _end(self) -> None:
        await self._check()
        for known in list(self.known.values()):
            if known.state == BatchState.PAUSED:
                await self._change_state(known, "resume")
                await self._check()
        for hand in list(self.alive):
            await self._finish(hand, [], [], split=False, seconds=0)
        await self._reap()
        rounds = 0
        while any(known.state not in FINAL for known in self.known.values()):
            rounds += 1
            assert rounds < 5, "a batch does not end"
            await self._rest_is_over()
            await chunk_sweeps.sweep(self.conn)
            await chunk_sweeps.promote(self.conn)
            for pool in self.pools:
                while await self._claim(pool, fresh=False, urgent=False):
                    hand = self.alive[-1]
                    await self._flush(hand, hand.loaded, 255)
                    await self._finish(hand, [], [], split=False, seconds=0)
            await self._settle()
            await self._check()
        assert await self._rows("select from chunk") == await self._rows("select from batch_delta") == []
        await order_deltas.fold(self.conn)
        assert set(await self._rows("select ready, inflight_tokens from sched")) == {(0, 0)}

    # ------------------------------------------------------------ helpers

    async def _rows(self, sql: str, *parameters: object) -> list[Any]:
        return await (await self.conn.execute(sql, parameters)).fetchall()

    def _batch(self, which: int) -> Known:
        return list(self.known.values())[which % len(self.known)]

    def _holders(self) -> list[int]:
        """Live workers with a leased chunk. Without one the loss of a worker has no effect."""
        return sorted({hand.lease.worker_id for hand in self.alive} - self.killed)

    def _ended(self) -> list[Known]:
        return [known for known in self.known.values() if known.state in FINAL]

    def _answered(self, known: Known) -> set[int]:
        return {seq for (batch, _, seq), ok in self.results.items() if batch == known.batch.batch_id and ok}

    def _result(self, seq: int, ok: bool) -> Result:
        return Result(seq, ok, 1, 3, 1, 5, b"{}")

    def _note_ends(self, settled: list[settling.Settled]) -> None:
        for one in settled:
            known = self.known[one.batch_id]
            known.ended[one.run] += 1
            answered = self._answered(known)
            failed = [
                ok for (batch, run, _), ok in self.results.items() if (batch, run) == (one.batch_id, one.run) and not ok
            ]
            assert (one.ok, one.failed, one.run) == (len(answered), len(failed), known.run)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


def test_whatever_happens_in_whatever_order_no_item_is_lost_repeated_or_counted_twice(
    ring: Ring, runner: asyncio.Runner
) -> None:
    with ring.taken() as url:
        Walk.url, Walk.runner = url, runner
        run_state_machine_as_test(Walk, settings=WALKS)
    steps = ", ".join(f"{verb} {count}" for verb, count in Walk.verbs.most_common())
    timing.note(f"the queue's state machine walked: {steps}")
    met = ", ".join(f"{what} {count}" for what, count in sorted(Walk.visited.items()))
    timing.note(f"the queue's state machine met: {met}")
    assert len(VERBS.keys() - Walk.verbs.keys()) <= 2  # which verbs are drawn changes with the code
    deep = {"claimed again", "given back", "reaped", "written too late, to a chunk that is still there"}
    assert deep | {"→ completed", "→ cancelled", "→ expired", "→ paused"} <= Walk.visited.keys()
