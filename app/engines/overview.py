"""Engines as operators see them: for the command line, and for the status document."""

from dataclasses import dataclass
from datetime import datetime

from app.db.pool import Connection
from app.engines import sql
from app.engines.adoption import DOWN
from app.engines.dialects import VLLM
from app.engines.engine_report import DRAINING
from app.states import EngineIntake, EngineState


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """An engine in the status document. `since`: of state and `reason`. `silent_seconds`: time since its last heartbeat.

    `held_seconds`: time since `since`. `overdue`: its worker has missed heartbeats, though its lease may still hold.
    """

    name: str
    model: str | None
    mode: str
    state: str
    reason: str | None
    signal: str | None
    value: float | None
    threshold: float | None
    since: datetime
    slots: int
    allowance: int
    serves: list[str]
    max_model_len: int | None
    version: str | None
    scheduling_policy: str | None
    protection: str
    problems: list[dict[str, str]]
    controlled: bool
    silent_seconds: float
    held_seconds: float
    intake: str = EngineIntake.OPEN.value
    dialect: str = VLLM.name
    overdue: bool = False


@dataclass(frozen=True, slots=True)
class EngineOverview:
    """An engine for operators. `alive`: a worker with a live lease controls it; `host` and `pid` are that worker's.

    `leased`: chunks leased by this worker. `intake_seconds`: time since `intake` changed. `start_seconds`: duration of its
    last start.
    """

    name: str
    model: str
    mode: str
    state: str
    reason: str | None
    reason_since: datetime
    intake: str
    intake_since: datetime
    allowance: int
    slots: int
    batch_in_flight: int
    sync_in_flight: int
    url: str
    heartbeat_at: datetime
    host: str | None
    pid: int | None
    alive: bool
    leased: int
    intake_seconds: float
    problems: list[dict[str, str]]
    start_seconds: float | None

    def drained(self, settle_seconds: float) -> bool:
        """Whether the engine takes no new work and no request is in flight on it.

        Its worker must have confirmed the drain, and every gateway must have read it, which takes `settle_seconds`.
        """
        if self.intake == EngineIntake.OPEN or self.intake_seconds < settle_seconds:
            return False
        is_empty = self.reason == DRAINING and not (self.leased or self.batch_in_flight or self.sync_in_flight)
        return not self.alive or is_empty

    @property
    def ready(self) -> bool:
        """Whether the engine answers, has a worker, and takes new work."""
        return self.alive and self.state == EngineState.READY and self.intake == EngineIntake.OPEN


def told_state(state: str, mode: str, reason: str | None, *, has_worker: bool) -> EngineState:
    """The state as people are told it: down without a worker, and starting while its worker starts an engine of its own."""
    if not has_worker:
        return EngineState.DOWN
    if (state, mode, reason) == (EngineState.DOWN, "managed", DOWN):
        return EngineState.STARTING
    return EngineState(state)


async def overview(conn: Connection) -> list[EngineOverview]:
    """Every engine that was ever taken, by name."""
    return [EngineOverview(*row) for row in await (await conn.execute(sql.OVERVIEW)).fetchall()]


async def recent_engines(conn: Connection) -> list[EngineInfo]:
    """Every engine that has a worker, or that a worker reported within the last day, by name."""
    return [EngineInfo(*row) for row in await (await conn.execute(sql.RECENT)).fetchall()]
