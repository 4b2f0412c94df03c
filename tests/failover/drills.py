"""What is done to an installation under load. The history checker of tests/crash judges at the end.

crash      the primary is killed, and its standby promoted
partition  a worker loses the database, a worker its engine, the API its workers, the API the database; then the primary loses
           everybody but one worker, its standby is promoted, and later the old primary is fenced
"""

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from testing.waiting import in_time
from tests.crash.checker import while_loaded
from tests.crash.client import Client
from tests.crash.history import Batch, Cut, History
from tests.crash.load import Load
from tests.crash.logs import judge_logs
from tests.crash.money import ROOMY
from tests.failover.caller import calling
from tests.failover.installation import API, PRIMARY, STANDBY, WORKERS, Replicated
from tests.failover.network import HERE, Network

LEASE_SECONDS = 2.0
CLIENTS = 4
BUSY_RESULTS = 60  # stored before something is done to the installation
MANY_ITEMS = 800
PATIENCE_SECONDS = 90.0
CUT_LEASES = 2.0
_STORED = "select count(*), extract(epoch from min(finished_at))::float8 from item_result where finished_at > to_timestamp(%s)"


@dataclass
class Outcome:
    """What a drill has found. `recovery`: seconds from each promote until a batch was accepted and a result stored."""

    history: History = field(default_factory=History)
    recovery: list[float] = field(default_factory=list)


class ShortQueue(Load):
    """The load of tests.crash with fewer open items, so that the end does not take long."""

    most_open_items = 200

    async def submit_many(self) -> None:
        """Submit a batch that keeps all workers busy for a while."""
        key = f"b{len(self._history.batches)}"
        batch = Batch(key, ROOMY, [f"{key} item {seq} plain" for seq in range(MANY_ITEMS)], "ndjson")
        self._history.batches.append(batch)
        await self._submit(batch)


class Drill:
    """What is done to one installation."""

    def __init__(self, system: Replicated, outcome: Outcome, load: ShortQueue, network: Network | None) -> None:
        self._system = system
        self._load = load
        self._pair = system.pair
        self._history = outcome.history
        self._outcome = outcome
        self._network = network

    async def crash(self) -> None:
        """Kill the primary and promote its standby."""
        await self._until_works(time.time(), BUSY_RESULTS)
        self._history.fault("SIGKILL of the primary")
        self._pair.primary.kill()
        await self._promote()
        await self._until_works(time.time(), BUSY_RESULTS)

    async def partition(self) -> None:
        """Cut one connection after the other; at last the primary from everybody but one worker."""
        async with calling(self._system):
            await self._until_works(time.time(), BUSY_RESULTS)
            one, other = WORKERS
            await self._cut(one, PRIMARY, STANDBY)
            await self._cut(one, HERE)
            await self._cut(API, *WORKERS)
            await self._cut(API, PRIMARY, STANDBY)
            await self._isolate(keeps=one, loses=(other, API, HERE, STANDBY))

    async def _cut(self, one: str, *others: str) -> None:
        """Cut hosts off from each other for longer than a lease."""
        assert self._network
        self._history.fault(f"{one} cut off from {' and '.join(others)}")
        began = time.time()
        with self._network.apart(one, *others):
            await asyncio.sleep(CUT_LEASES * LEASE_SECONDS)
        if one in WORKERS and HERE in others:
            self._history.cuts.append(Cut(self._engine(one), began, time.time()))
        self._history.log_line("healed")
        await self._until_works(time.time())

    async def _isolate(self, keeps: str, loses: tuple[str, ...]) -> None:
        """The primary loses all but the worker `keeps`, which in turn does not reach the standby. A lease later the standby is
        promoted. The old primary goes on beside it, until it is fenced.
        """
        assert self._network
        await self._load.submit_many()  # so that there would be work for whoever stays with the old primary
        self._history.fault("primary isolated")
        self._network.cut(PRIMARY, *loses)
        self._network.cut(keeps, STANDBY)
        await asyncio.sleep(CUT_LEASES * LEASE_SECONDS)
        promoted = time.time()
        await self._promote()
        await asyncio.sleep(CUT_LEASES * LEASE_SECONDS)
        self._history.log_line("old primary fenced")
        stale = [each for each in self._history.arrivals if each.engine == self._engine(keeps) and each.at > promoted]
        queued = [each for each in stale if each.prompt not in self._history.calls]
        if queued:
            told = f"{len(queued)} requests of {keeps}, which stayed with the old primary, after the promote"
            self._history.wrong("ran_without_lease", told, len(queued))
        self._pair.primary.kill()
        self._network.heal()
        await self._until_works(time.time(), BUSY_RESULTS)

    def _engine(self, worker: str) -> str:
        return f"engine-{WORKERS[worker]}"

    async def _promote(self) -> None:
        began = time.time()
        await self._pair.promote()
        self._history.log_line("standby promoted")
        self._outcome.recovery.append(await self._until_works(began))
        print(f"works again {self._outcome.recovery[-1]:.2f} s after the promote", file=sys.stderr, flush=True)

    async def _until_works(self, since: float, results: int = 1) -> float:
        """Wait until a batch was accepted and `results` were stored. Returns the seconds from `since` to the first of each."""
        async with in_time():
            while True:
                with suppress(psycopg.Error):
                    [(stored, first)] = await self._pair.rows(_STORED, since)
                    accepted = [each.accepted_at for each in self._history.accepted if each.accepted_at > since]
                    if accepted and stored >= results:
                        return float(max(first, min(accepted)) - since)
                await asyncio.sleep(0.05)


DRILLS: dict[str, Callable[[Drill], Awaitable[None]]] = {"crash": Drill.crash, "partition": Drill.partition}
NETWORKED = ("partition",)


async def run(name: str, seed: int = 1, *, keep_logs: bool = False) -> Outcome:
    """Run one drill under load, and judge. Logs of a bad run are always kept."""
    outcome = Outcome()
    history = outcome.history
    network = Network() if name in NETWORKED else None
    system = Replicated(history, seed, LEASE_SECONDS, network)
    try:
        await system.start()
        client = Client(system, history)
        load = ShortQueue(client, history, seed)
        drill = Drill(system, outcome, load, network)
        await while_loaded(system, client, load, lambda: DRILLS[name](drill), CLIENTS)
    except Exception:
        history.wrong("broken_runs", traceback.format_exc())
    finally:
        judge_logs(history, system.ground.logs)
        kept = await system.close(keep_logs or not history.sound)
        if kept:
            history.details.append(f"logs of all parts: {kept}")
        if network is not None:
            network.close()
    return outcome
