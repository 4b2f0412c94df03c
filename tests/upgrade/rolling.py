"""One run: the old version under load, the new schema, then old and new parts in pairs, and at the end the new version alone.

An arrangement says of each kind of part which version it has. The next one differs in one kind, whose processes are replaced one
after the other, so that meanwhile both versions of that kind run. An arrangement lasts until batches that were accepted in it
have succeeded and their webhooks have come: every part has then worked with every other.
"""

import asyncio
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.checker import while_loaded
from tests.crash.history import History
from tests.crash.load import Load
from tests.crash.logs import judge_logs
from tests.upgrade.fleet import KINDS, WORKERS, Fleet, SubmittingClient, ready
from tests.upgrade.versions import following, released

CLIENTS = 4
PROOFS = 3  # batches that succeed in each arrangement
PROOF_SECONDS = 240.0

Arrangement = frozenset[str]  # the kinds that have the new version


@dataclass
class Rolling:
    """What a run has found. `refused`: what parts of the old version said once the schema was closed to them."""

    history: History = field(default_factory=History)
    arrangements: list[Arrangement] = field(default_factory=list)
    refused: str = ""

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """(a kind that was old, a kind that was new) in one arrangement."""
        return {(old, new) for each in self.arrangements for old in set(KINDS) - each for new in each}


class UpgradeLoad(Load):
    """The load of tests.crash with a short queue, so that an arrangement does not last for long."""

    most_open_items = 150


def every_arrangement(kinds: Sequence[str] = KINDS) -> Iterator[Arrangement]:
    """All arrangements of these kinds, the old version alone first. Each differs from the one before in one kind, which goes
    forward or back: a Gray code, https://en.wikipedia.org/wiki/Gray_code.
    """
    for n in range(2 ** len(kinds)):
        code = n ^ n >> 1
        yield frozenset(kind for place, kind in enumerate(kinds) if code >> place & 1)


async def roll(arrangements: Sequence[Arrangement], seed: int = 1, *, keep_logs: bool = False) -> Rolling:
    """Run through these arrangements under load, and judge. Logs of a bad run are always kept."""
    found = Rolling()
    await _try(found, lambda fleet: _upgrade(fleet, found, arrangements), seed, mixed=False, keep_logs=keep_logs)
    return found


async def mix(seed: int = 1) -> Rolling:
    """Run one old and one new process of each kind side by side under load, and judge."""
    found = Rolling()
    await _try(found, _mingled, seed, mixed=True)
    return found


async def _try(
    found: Rolling, work: Callable[[Fleet], Awaitable[None]], seed: int, *, mixed: bool, keep_logs: bool = False
) -> None:
    """An installation, the load while `work` runs, and the verdict."""
    with tempfile.TemporaryDirectory(prefix="swversions-") as folder:
        old, new = await asyncio.gather(
            asyncio.to_thread(released, Path(folder) / "old"), asyncio.to_thread(following, Path(folder) / "new")
        )
        Path(folder).chmod(0o755)  # the embedded server runs as another user
        fleet = Fleet(found.history, seed, old, new, mixed=mixed)
        try:
            await fleet.start()
            await _run(fleet, work, seed)
        except Exception:
            found.history.wrong("broken_runs", traceback.format_exc())
        finally:
            judge_logs(found.history, fleet.ground.logs)
            kept = await fleet.close(keep_logs or not found.history.sound)
            if kept:
                found.history.details.append(f"logs of all parts: {kept}")


async def _run(fleet: Fleet, work: Callable[[Fleet], Awaitable[None]], seed: int) -> None:
    client = SubmittingClient(fleet, fleet.history)
    load = UpgradeLoad(client, fleet.history, seed)
    await while_loaded(fleet, client, load, lambda: work(fleet), CLIENTS)


async def _mingled(fleet: Fleet) -> None:
    """Wait until work went through both versions of each part that it needs."""
    await _proven(fleet)
    async with asyncio.timeout(PROOF_SECONDS):
        while len({arrival.sender for arrival in fleet.history.arrivals}) < len(WORKERS):
            await asyncio.sleep(0.05)
    assert fleet.balancer.used == {"api-0", "api-1"}


async def _upgrade(fleet: Fleet, found: Rolling, arrangements: Sequence[Arrangement]) -> None:
    """Migrate beside the old version, run through the arrangements, and close the schema to the old version."""
    await _proven(fleet)
    await fleet.migrate(fleet.new)
    for arrangement in arrangements:
        await _arrange(fleet, arrangement)
        await _proven(fleet)
        found.arrangements.append(arrangement)
    await _arrange(fleet, frozenset(KINDS))
    await fleet.migrate(fleet.new, "--contract")
    found.refused = await _refused(fleet)


async def _arrange(fleet: Fleet, arrangement: Arrangement) -> None:
    """Replace what has another version."""
    for kind in KINDS:
        wanted = fleet.new if kind in arrangement else fleet.old
        if fleet.versions[kind] is not wanted:
            await fleet.replace(kind, wanted)
    print(f"new: {', '.join(sorted(arrangement)) or 'none'}", file=sys.stderr, flush=True)


async def _proven(fleet: Fleet) -> None:
    """Wait until batches that were accepted from now on have succeeded, and their events were received."""
    began, history = time.time(), fleet.history
    deadline = time.monotonic() + PROOF_SECONDS
    while True:
        succeeded = {request_id for _, kind, request_id in history.webhooks if kind.endswith("batch.succeeded")}
        proofs = [each for each in history.accepted if each.accepted_at > began and each.request_id in succeeded]
        if len(proofs) >= PROOFS:
            return
        assert time.monotonic() < deadline, (
            f"{len(proofs)} of {PROOFS} batches in {PROOF_SECONDS:.0f} s: {fleet.versions}"
        )
        await asyncio.sleep(0.05)


async def _refused(fleet: Fleet) -> str:
    """What an API of the old version says now. It gets no requests, and makes room for the new version again."""
    name = "api-0"
    await fleet.restart(name, fleet.old)
    port = fleet.parts[name].settings.port
    status, text = 200, ""
    while status not in (200, 503) or not text:
        status, text = await ready(port)
        await asyncio.sleep(0.1)
    await fleet.restart(name, fleet.new)
    await fleet.until_serving(name)
    return f"{status} {text}"
