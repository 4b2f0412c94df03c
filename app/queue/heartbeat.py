"""The heartbeats of workers: they renew leases and report engines; the answers say what a worker has to know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.db.pool import Connection
from app.engines import engine_report
from app.engines.engine_report import EngineReport
from app.queue import heartbeat_sql
from app.queue.types import HeldLease
from app.states import BatchState, EngineIntake


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The heartbeat of one worker. `engine_id`, `report`: of the engine that it controls; None: it controls none."""

    worker_id: int
    engine_id: int | None = None
    report: EngineReport | None = None


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat. The lease is renewed; it covers the chunks of `held`.

    `intake`: whether the engine is to take new work; None: nothing was reported, or another worker controls it. `slack`: the
    smallest share of its window that a batch of the pool has left; None: not known, or no batch has a deadline. `scarce`:
    nothing is ready in the pool, and an engine of it has nothing. `workers`: those with a lease, in all pools. `work_waits`:
    the worker is hungry, and a chunk of its pool is ready.
    """

    held: list[HeldLease]
    intake: EngineIntake | None = None
    slack: float | None = None
    scarce: bool = False
    workers: int = 1
    work_waits: bool = False


async def send(
    conn: Connection, heartbeats: Sequence[Heartbeat], lease_seconds: float, *, news: bool = True
) -> dict[int, HeartbeatAnswer]:
    """Renew the leases of these workers. Returns the answers by worker id; none for a worker whose lease has lapsed.

    Without `news`, the reports are as before and are not stored again, which costs about half.
    """
    reports = [
        (each.engine_id, each.worker_id, each.report)
        for each in heartbeats
        if each.engine_id is not None and each.report is not None
    ]
    parameters = {
        "worker_ids": [each.worker_id for each in heartbeats],
        "hungry": [each.report is not None and each.report.hungry for each in heartbeats],
        "lease_seconds": lease_seconds,
    }
    if news:
        statement, told = heartbeat_sql.HEARTBEAT, engine_report.columns(reports)
    else:
        statement, told = (
            heartbeat_sql.HEARTBEAT_WITHOUT_NEWS,
            {"engine_ids": [engine_id for engine_id, _, _ in reports]},
        )
    rows = await (await conn.execute(statement, parameters | told)).fetchall()
    return {worker_id: _answer(*row) for worker_id, *row in rows}


async def waiting(conn: Connection, most: int) -> list[str]:
    """Where workers hear of work that wait although some is ready for them: as many, chosen at random."""
    return [url for (url,) in await (await conn.execute(heartbeat_sql.WAITING, {"most": most})).fetchall()]


def _answer(
    intake: str | None, slack: float | None, scarce: bool, workers: int, work_waits: bool, held: list[list[Any]]
) -> HeartbeatAnswer:
    leases = [HeldLease(chunk, token, batch, run, n, BatchState(state)) for chunk, token, batch, run, n, state in held]
    return HeartbeatAnswer(leases, EngineIntake(intake) if intake else None, slack, scarce, workers, work_waits)
