"""Claims chunks from the queue while the pending items may soon be too few for the allowance."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from app.causes import cause
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import KeysUnavailable
from app.queue import bodies
from app.queue import service as queue
from app.queue.bodies import BatchSeal
from app.queue.fair_order_sql import SIZES
from app.queue.heartbeat import HeartbeatAnswer
from app.queue.types import Fence, HeldLease, Item, Lease
from app.sealing import batch_keys
from app.sealing.keyring import Keyring
from app.settings import Settings
from workers.gpu.admission import Admission
from workers.gpu.claim_backoff import ClaimBackoff
from workers.gpu.open_chunk import OpenChunks
from workers.gpu.result_writer import DATABASE_PAUSE_SECONDS

KEY_PAUSE_SECONDS = 5.0  # before a chunk whose key could not be unwrapped is claimed again
URGENT_EVERY = 4  # one claim of so many takes the chunk with the nearest deadline
CLAIMED_SECONDS = 2.0  # of the engine's work in one claim, at most
LOOK_BACK_SECONDS = 5.0  # over which its speed is counted

log = structlog.get_logger()


class Claimer:
    """Claims for one pool as one worker, between `join` and `leave`. `take` gets each claimed chunk."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        chunks: OpenChunks,
        admission: Admission,
        take: Callable[[Lease, list[Item], BatchSeal | None], None],
    ) -> None:
        self._settings = settings
        self._backoff = ClaimBackoff(settings.poll_seconds)
        self._database = database
        self._keyring = Keyring.of(settings)
        self._chunks = chunks
        self._admission = admission
        self._take = take
        self._identity: tuple[int, int] | None = None
        self._strays: set[Fence] = set()
        self._claims = 0
        self._last_items = 0  # of the last chunk
        self._claiming = asyncio.Lock()
        self._wake = asyncio.Event()
        self._woken = asyncio.Event()
        self._idle = self._generous = False

    def join(self, pool_id: int, worker_id: int) -> None:
        """Claim from now on for this pool as this worker."""
        self._identity = (pool_id, worker_id)
        self._strays = set()
        self._wake.set()
        self._woken.set()

    def leave(self) -> None:
        """Claim nothing until the next `join`."""
        self._identity = None

    async def stop(self) -> None:
        """Return once no claim is under way. The chunks are draining, so no other follows."""
        self._wake.set()
        self._woken.set()
        async with self._claiming:
            pass

    def wake(self) -> None:
        """Claim soon if there are too few pending items."""
        if self._hungry:
            self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether we need work, and found none."""
        return self._idle and self._hungry

    def on_wake(self) -> None:
        """Work has come: claim now, if we need some."""
        self._woken.set()

    def on_heartbeat(self, answer: HeartbeatAnswer) -> None:
        """Take over what a heartbeat says: the size of the fleet, and whether work waits. Where work is scarce, a worker claims
        no more while it has some, so that others get the rest.
        """
        self._backoff.workers = answer.workers
        self._generous = answer.scarce
        self.wake()
        if self._idle and self._backoff.on_heartbeat(work_waits=answer.work_waits):
            delay = random.uniform(0, self._backoff.spread(self._settings.heartbeat_seconds))  # noqa: S311
            asyncio.get_running_loop().call_later(delay, self._woken.set)

    def strays(self, held: Sequence[HeldLease]) -> set[Fence]:
        """Leases to end: two heartbeats in a row list them, and no open chunk has them.

        They are the result of a claim or a finish whose answer was lost.
        """
        if self._identity is None:
            return set()
        worker_id, before = self._identity[1], self._strays
        self._strays = {
            Fence(lease.chunk_id, lease.token, worker_id, lease.batch_id, lease.run, lease.n)
            for lease in held
            if lease.chunk_id not in self._chunks
        }
        return set() if self._claiming.locked() else self._strays & before

    async def run(self) -> None:
        """Claim until the chunks are draining, or until cancelled."""
        while not self._chunks.draining:
            if not self._hungry:
                self._wake.clear()
                await self._wake.wait()
                continue
            self._woken.clear()  # before the claim, so that what comes during it is not missed
            try:
                # The fuller the engine, the later it claims: the emptiest engine of a pool comes first.
                await asyncio.sleep(self._settings.poll_seconds * (1 - self._admission.free_share))
                async with self._claiming:
                    claimed = await self._claim()
            except TRANSIENT as error:
                log.warning("database.unavailable", verb="claim", error=cause(error))
                await asyncio.sleep(DATABASE_PAUSE_SECONDS)
                continue
            if claimed:
                self._backoff.found_work()
            else:
                self._backoff.found_nothing()
                await self._wait()

    async def _wait(self) -> None:
        """Wait until it is said that work has come, or until the next look."""
        self._idle = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._backoff.pause()):
                await self._woken.wait()
        self._idle = False

    @property
    def _hungry(self) -> bool:
        return self._identity is not None and self._admission.hungry and not (self._generous and self._chunks)

    async def _claim(self) -> bool:
        """Claim chunks. False: there are none, or none is needed any more."""
        identity = self._identity
        if identity is None or self._chunks.draining or not self._hungry:
            return False
        self._claims += 1
        async with self._database.relaxed() as conn:
            leases = []
            if self._claims % URGENT_EVERY == 0:
                leases = await queue.claim(conn, *identity, urgent=True)
            leases = leases or await queue.claim(conn, *identity, chunks=self._size())
            loaded = [(lease, await queue.load(conn, lease)) for lease in leases]
        return all([await self._open(identity, lease, items) for lease, items in loaded]) and bool(loaded)

    def _size(self) -> int:
        """How many chunks like the last one the engine has started lately in CLAIMED_SECONDS, at least one. So a fast engine
        claims less often, and a slow one leaves the rest of a batch to others.
        """
        if not self._last_items:
            return 1
        items = self._admission.started_within(LOOK_BACK_SECONDS) / LOOK_BACK_SECONDS * CLAIMED_SECONDS
        return max((size for size in SIZES if size <= items / self._last_items), default=1)

    async def _open(self, identity: tuple[int, int], lease: Lease, items: list[Item]) -> bool:
        """Take a claimed chunk. False: it cannot be read now, or the worker claims as another one by now."""
        try:
            items, seal = await bodies.opened(self._keyring, lease.batch_id, items)
        except KeysUnavailable as error:
            await self._hand_back(lease, error)
            return False
        if self._identity != identity:
            return False
        self._last_items = lease.n
        self._take(lease, items, seal)
        return True

    async def _hand_back(self, lease: Lease, error: KeysUnavailable) -> None:
        """End the lease of a chunk that cannot be read. It comes again after a pause; `why` has the reason meanwhile."""
        log.warning("chunk.sealed", chunk=lease.chunk_id, batch=lease.batch_id, error=error.message)
        async with self._database.relaxed() as conn:
            await batch_keys.note_failure(conn, lease.batch_id, error.message)
            await queue.finish(conn, lease, backoff_seconds=KEY_PAUSE_SECONDS)
