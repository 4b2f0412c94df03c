"""One run: start the system, apply load and faults, end the faults, wait until the system is at rest, and judge."""

import asyncio
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from testing.waiting import LIMIT_SECONDS
from tests.crash.client import Client
from tests.crash.conversation_verdict import judge as judge_conversations
from tests.crash.conversations import Conversations
from tests.crash.history import MUST_BE_ZERO, History
from tests.crash.load import Load
from tests.crash.logs import judge_logs
from tests.crash.nemesis import Nemesis
from tests.crash.pipeline_verdict import judge as judge_pipelines
from tests.crash.pipelines import Pipelines
from tests.crash.system import LEASE_SECONDS, System
from tests.crash.verdict import judge

HANDS = 2


async def check(
    seed: int,
    seconds: float,
    *,
    kind: type[System] = System,
    lease: float = LEASE_SECONDS,
    only: Sequence[str] = (),
    keep_logs: bool = False,
) -> History:
    """The judged history of a run of this kind, under attack for so many seconds, `only` by the faults that are named.

    Logs of a bad run are always kept.
    """
    history = History()
    async with _system(kind(history, seed, lease), keep_logs) as system:
        began = time.monotonic()
        client = Client(system, history)
        load = Load(client, history, seed)
        pipelines = Pipelines(system, client, history, seed)
        conversations = Conversations(system, client, history)
        load.table |= pipelines.table | conversations.table
        try:
            await client.start()
            history.log_line("load begins")
            await _attack(load, Nemesis(system, history, client, seed, only), seconds, system.clients)
            history.log_line("healed")
            history.notes["seconds under attack"] = round(time.monotonic() - began)
            await pipelines.rest()
            await conversations.rest()
            await rest(system, history, load)
            await judge(system, history)
            await judge_pipelines(system, history, pipelines)
            await judge_conversations(history, system.postgres.rows, conversations.talks)
        except Exception:  # of the checker itself, or of clients that never got a response
            history.wrong("broken_runs", traceback.format_exc())
        finally:
            await pipelines.close()
            await conversations.close()
            await client.close()
            judge_logs(history, system.ground.logs)
        history.notes["seconds in all"] = round(time.monotonic() - began)
    return history


async def while_loaded(
    system: System, client: Client, load: Load, work: Callable[[], Awaitable[None]], clients: int
) -> None:
    """Apply load while `work` runs. Then wait until the system is at rest, and judge."""
    enough = asyncio.Event()
    try:
        await client.start()
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                group.create_task(load.run(number, enough))
            try:
                await work()
            finally:
                enough.set()
        await rest(system, system.history, load)
        await judge(system, system.history)
    finally:
        await client.close()


@asynccontextmanager
async def _system(system: System, keep_logs: bool) -> AsyncIterator[System]:
    history = system.history
    finished = False
    try:
        await system.start()
        yield system
        finished = history.sound
    finally:
        kept = await system.close(keep_logs or not finished)
        if kept:
            history.details.append(f"logs of all parts: {kept}")
            print(f"logs of all parts: {kept}", file=sys.stderr, flush=True)


async def _attack(load: Load, nemesis: Nemesis, seconds: float, count: int) -> None:
    """Apply load and faults for a while. Then stop the faults and wait until every client has its last response."""
    enough = asyncio.Event()
    async with asyncio.TaskGroup() as clients:
        for number in range(count):
            clients.create_task(load.run(number, enough))
        async with asyncio.TaskGroup() as hands:
            for number in range(HANDS):
                hands.create_task(nemesis.run(number, enough))
            await asyncio.sleep(seconds)
            enough.set()
        await nemesis.heal()


async def rest(system: System, history: History, load: Load) -> None:
    """Poll every batch until it is final or the deadline has passed. The verdict reports those that are not final."""
    await load.lifecycle.release()
    deadline = time.monotonic() + LIMIT_SECONDS
    left = history.accepted
    while left and time.monotonic() < deadline:
        left = [batch for batch in left if not await load.poll(batch)]
        await load.budgets.relieve(left)
        await load.lifecycle.end_waiting(left)
        await asyncio.sleep(0.2)
    for batch in left:
        history.wrong("unaccounted", f"{batch.key} is not final {LIMIT_SECONDS:.0f} s after all faults ended")
    await _until_folded(system)


async def _until_folded(system: System) -> None:
    """Wait for the steward: final batches may leave empty chunks and deltas for a moment."""
    deadline = time.monotonic() + LIMIT_SECONDS
    sql = "select exists (select from chunk) or exists (select from batch_delta)"
    while (await system.postgres.rows(sql)) == [(True,)] and time.monotonic() < deadline:
        await asyncio.sleep(0.1)


def report(history: History, seed: int) -> str:
    """A report of the run as text."""

    def line(title: str, counts: dict[str, int]) -> str:
        return f"{title}: " + ", ".join(f"{name} {n}" for name, n in counts.items())

    return "\n".join(
        (
            f"seed {seed}: {len(history.accepted)} batches, {history.items} items, {len(history.arrivals)} requests at engines",
            line("operations", dict(history.operations)),
            line("answers", dict(history.answers)),
            line(f"faults ({sum(history.faults.values())})", dict(history.faults)),
            line("also", dict(history.notes)),
            line("must be 0", {name: history.counts[name] for name in MUST_BE_ZERO}),
            *history.details,
        )
    )
