"""Engines as operators see them: for the command line, and for the status document."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from app.db.pool import Connection
from app.engines import sql
from app.engines.dialects import VLLM
from app.engines.engine_report import DRAINING
from app.engines.told_state import NO_WORKER, is_reported
from app.engines.told_state import told_state as told_state  # noqa: PLC0414  (of this module, too)
from app.quantities import duration
from app.states import ENGINE, EngineIntake, EngineState


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """An engine in the status document. `since`: of state and `reason`. `silent_seconds`: time since its last heartbeat.

    `held_seconds`: time since `since`. `alive`, `free`: as in `told_state.Reported`. `overdue`: its worker has missed heartbeats,
    though its lease may still hold. `detail`: of one that does not serve, how its process ended.
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
    alive: bool
    silent_seconds: float
    held_seconds: float
    intake: str = EngineIntake.OPEN.value
    dialect: str = VLLM.name
    overdue: bool = False
    detail: str | None = None
    free: bool = False


@dataclass(frozen=True, slots=True)
class EngineOverview:
    """An engine for operators. `alive`: a worker with a live lease controls it; `host` and `pid` are that worker's.

    `leased`: chunks leased by this worker. `intake_seconds`: time since `intake` changed. `start_seconds`: duration of its
    last start. `silent_seconds`, `overdue` and `free` as in EngineInfo.
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
    silent_seconds: float
    overdue: bool
    free: bool

    def drained(self, settle_seconds: float) -> bool:
        """Whether the engine takes no new work and no request is in flight on it.

        Its worker must have confirmed the drain, and every gateway must have read it, which takes `settle_seconds`.
        """
        if self.intake == EngineIntake.OPEN or self.intake_seconds < settle_seconds:
            return False
        is_empty = self.reason == DRAINING and not (self.leased or self.batch_in_flight or self.sync_in_flight)
        return not self.alive or is_empty

    @property
    def told_reason(self) -> str | None:
        """The reason as people are told it: its worker's, as long as that says it."""
        reported = is_reported(self.silent_seconds, alive=self.alive, free=self.free)
        return self.reason if reported else NO_WORKER

    @property
    def ready(self) -> bool:
        """Whether the engine answers, has a worker, and takes new work."""
        return self.alive and self.state == EngineState.READY and self.intake == EngineIntake.OPEN


def heard(silent_seconds: float, *, silent: bool) -> str:
    """How long ago an engine's worker reported it: "4 s ago"; if more reports were due since, "silent for 3 min"."""
    age = duration(max(1, round(silent_seconds)))
    return f"silent for {age}" if silent else f"{age} ago"


async def overview(conn: Connection) -> list[EngineOverview]:
    """Every engine that was ever taken, by name."""
    return [EngineOverview(*row) for row in await (await conn.execute(sql.OVERVIEW)).fetchall()]


async def recent_engines(conn: Connection) -> list[EngineInfo]:
    """Every engine that has a worker, or that a worker reported within the last day, by name."""
    return [EngineInfo(*row) for row in await (await conn.execute(sql.RECENT)).fetchall()]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """How many engines are in each state, as people are told it."""
    rows = await (await conn.execute(sql.STATES)).fetchall()
    found = Counter(told_state(state, mode, reason, has_worker=alive) for state, mode, reason, alive in rows)
    return [("engines", state.value, float(found[EngineState(state)])) for state in ENGINE.stored()]
