"""Injects faults, chosen by the seed. Each fault starts, lasts a while and ends; two tasks inject independently."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

from testing.waiting import eventually
from tests.crash.client import EVENTS, ITEM_EVENTS, Client
from tests.crash.engines import DOOMED
from tests.crash.history import History
from tests.crash.system import HOSTS, TENANTS, WORKERS, System
from tests.wire import Wire

# In leases: about as long as a lease and its reaping. A process that returns then meets the next owner of its work.
LEASE_AND_MORE = (0.9, 1.45)
BEYOND_LEASE = (1.2, 2.0)
HOURS = (600.0, 3600.0)
WITHIN_TOLERANCE = (60.0, 240.0)  # seconds; receivers refuse a signature whose time is off by more than 5 minutes


class Nemesis:
    """The faults are the rows of `table`: name → (weight, coroutine)."""

    def __init__(self, system: System, history: History, client: Client, seed: int, only: Sequence[str] = ()) -> None:
        self._system = system
        self._workers = list(system.workers)
        self._stewards = [name for name in system.modules if name.startswith("steward")]
        self._client = client
        self._lease = system.settings.lease_seconds
        self._history = history
        self._seed = seed
        self._foundations = asyncio.Lock()  # only one fault of the disk or the database at a time
        self.table: dict[str, tuple[int, Callable[[random.Random], Awaitable[None]]]] = {
            "kill worker": (5, lambda rng: self._kill(rng.choice(self._workers))),
            "kill steward": (2, lambda rng: self._kill(rng.choice(self._stewards))),
            "kill api": (2, lambda rng: self._kill("api")),
            "kill maintenance": (1, lambda rng: self._kill("maintenance")),
            "kill notifier": (1, lambda rng: self._kill("notifier")),
            "stop worker": (8, self._stop_worker),
            "stop steward": (1, self._stop_steward),
            "stop all of a host": (2, self._stop_host),
            "drain worker under another clock": (2, lambda rng: self._skew(rng, rng.choice(self._workers), HOURS)),
            "api under another clock": (1, lambda rng: self._skew(rng, "api", HOURS)),
            "notifier under another clock": (1, lambda rng: self._skew(rng, "notifier", WITHIN_TOLERANCE)),
            "crash postgres": (3, self._crash_postgres),
            "outage beyond the lease": (1, self._outage),
            "delete endpoint": (3, self._delete_endpoint),
            "reset connections": (4, self._reset),
            "mute database": (3, self._mute),
            "stall database": (5, self._stall),
            "silence database": (2, self._silence),
            "truncate broker": (2, self._truncate_broker),
        }
        if system.ground.small:
            self.table["full disk"] = (2, self._full_disk)
        if only:
            self.table = {name: self.table[name] for name in only}

    async def run(self, number: int, until: asyncio.Event) -> None:
        """Inject faults until `until` is set. A fault that was started is ended."""
        rng = random.Random(f"{self._seed}/nemesis/{number}")
        queue: list[str] = []
        while not until.is_set():
            if not queue:  # every kind comes once before any kind is repeated
                queue = [name for name, (weight, _) in self.table.items() for _ in range(weight)]
                rng.shuffle(queue)
                queue.sort(key=_first_round(queue))
            await self.table[queue.pop(0)][1](rng)
            await asyncio.sleep(rng.uniform(0.1, 0.8))

    async def heal(self) -> None:
        """End every fault that may still be active."""
        await self._system.heal()

    async def _kill(self, name: str) -> None:
        pid = self._system.parts[name].send(signal.SIGKILL)
        self._history.fault(f"SIGKILL of {_kind(name)}", f"{name} ({pid})")

    async def _stop_worker(self, rng: random.Random) -> None:
        name = rng.choice(self._workers)
        self._history.fault("SIGSTOP of worker", name)
        await self._system.parts[name].stop_for(self._lease * rng.uniform(*LEASE_AND_MORE))

    async def _stop_steward(self, rng: random.Random) -> None:
        name = rng.choice(self._stewards)
        self._history.fault("SIGSTOP of steward", name)
        await self._system.parts[name].stop_for(rng.uniform(0.5, 3))

    async def _stop_host(self, rng: random.Random) -> None:
        """What runs there stands still until all its leases have lapsed."""
        parts = [part for name in rng.choice(HOSTS) if (part := self._system.parts.get(name)) is not None]
        seconds = self._lease * rng.uniform(*BEYOND_LEASE)
        self._history.fault("SIGSTOP of all of a host", f"{', '.join(part.name for part in parts)} {seconds:.1f} s")
        await asyncio.gather(*(part.stop_for(seconds) for part in parts))

    async def _skew(self, rng: random.Random, name: str, seconds: tuple[float, float]) -> None:
        part = self._system.parts[name]
        part.skew = rng.choice((-1, 1)) * rng.uniform(*seconds)
        self._history.fault(f"clock skew of {_kind(name)} after SIGTERM", f"{name} {part.skew:.0f} s")
        part.send(signal.SIGTERM)

    async def _crash_postgres(self, rng: random.Random) -> None:
        async with self._foundations:
            self._history.fault("immediate stop of PostgreSQL")
            await self._system.postgres.crash()
            await self._until_database()
            await asyncio.sleep(rng.uniform(0, 3))

    async def _outage(self, rng: random.Random) -> None:
        """Stop the database until every lease has lapsed."""
        async with self._foundations:
            seconds = self._lease * rng.uniform(*BEYOND_LEASE)
            self._history.fault("outage of PostgreSQL beyond the lease", f"{seconds:.1f} s")
            await self._system.postgres.crash(seconds)
            await self._until_database()

    async def _delete_endpoint(self, rng: random.Random) -> None:
        """Register another endpoint, and delete it while events are written for it and sent to it."""
        tenant, name = rng.choice(TENANTS), f"{DOOMED}-{rng.getrandbits(32):08x}"
        endpoint_id, name = await self._client.subscribe(tenant, name, [*EVENTS, *ITEM_EVENTS])
        enough, deadline = rng.randint(0, 3), time.monotonic() + 5
        while self._history.sent_before_deletion(name) < enough and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self._history.fault("endpoint deleted", f"{name} of {tenant}")
        await self._client.unsubscribe(tenant, endpoint_id)
        self._history.deleted[name] = time.time()

    async def _full_disk(self, rng: random.Random) -> None:
        async with self._foundations:
            self._history.fault("full disk")
            try:
                await asyncio.to_thread(self._system.ground.fill)
                await asyncio.sleep(rng.uniform(1, 2.5))
            finally:
                self._system.ground.clear()
            self._history.log_line("disk free")
            await self._until_database()

    async def _until_database(self) -> None:
        await eventually(self._system.postgres.answers, "PostgreSQL answers")
        self._history.log_line("PostgreSQL answers")
        await asyncio.sleep(0.7)

    def _wire(self, rng: random.Random) -> tuple[str, Wire]:
        weights = [3 if name in WORKERS else 1 for name in self._system.parts]
        [name] = rng.choices(list(self._system.parts), weights)
        return name, self._system.parts[name].wire

    async def _reset(self, rng: random.Random) -> None:
        name, wire = self._wire(rng)
        spared = rng.choice((0.0, 0.0, 0.5))
        cut = wire.cut(lambda: rng.random() < spared)
        self._history.fault("connection reset", f"{name}: {cut} connections")

    async def _mute(self, rng: random.Random) -> None:
        """The server executes the queries, but its responses do not arrive."""
        name, wire = self._wire(rng)
        self._history.fault("answers of the database lost", name)
        await self._disturb(wire, wire.mute, rng.uniform(0.05, 1.0), cut=True)

    async def _stall(self, rng: random.Random) -> None:
        """Block both directions. Afterwards everything arrives late, or the connections are reset."""
        name, wire = self._wire(rng)
        short, long = rng.uniform(0.2, 1.0), self._lease * rng.uniform(*LEASE_AND_MORE)
        seconds, cut = rng.choice((short, long)), rng.random() < 0.3
        self._history.fault("network partition", f"{name} {seconds:.1f} s{', then reset' if cut else ''}")
        await self._disturb(wire, wire.stall, seconds, cut=cut)

    async def _silence(self, rng: random.Random) -> None:
        """The connections that there are say nothing ever again, and nobody closes them."""
        name, wire = self._wire(rng)
        self._history.fault("connections fell silent", name)
        wire.abandon()

    async def _disturb(self, wire: Wire, begin: Callable[[], None], seconds: float, *, cut: bool) -> None:
        begin()
        try:
            await asyncio.sleep(seconds)
            if cut:
                wire.cut()
        finally:
            wire.release()

    async def _truncate_broker(self, rng: random.Random) -> None:
        self._history.fault("broker truncated")
        try:
            queues = await self._system.postgres.rows("select queue_name from pgmq.meta")
            for (queue,) in queues:
                await self._system.postgres.rows(f"truncate pgmq.q_{queue}")
        except Exception as error:
            self._history.notes[f"broker not truncated: {type(error).__name__}"] += 1


def _kind(name: str) -> str:
    return "worker" if name in WORKERS else name.rstrip("-01")


def _first_round(queue: list[str]) -> Callable[[str], int]:
    """A sort key that puts one of each kind first and otherwise keeps the shuffled order."""
    seen: set[str] = set()

    def key(name: str) -> int:
        fresh = name not in seen
        seen.add(name)
        return 0 if fresh else 1

    return key
