"""How this installation is: its parts, its engines, its queue, and what is wrong with them.

ok         everything works
degraded   something is wrong, or not up yet, but requests are or will be answered
down       nothing is answered: no database, or no engine that is ready or being started
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from app import clock
from app.db.pool import Database
from app.db.stale_if_error import AWAY
from app.engines import service as engines
from app.engines.adoption import EngineProblem
from app.engines.service import EngineInfo
from app.headroom import reason_messages
from app.queue import overview
from app.queue.overview import Overview
from app.states import EngineIntake, EngineState
from app.version import version

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 2.0
SILENT_SECONDS = 60.0  # nobody looks at an engine of which nobody has spoken for so long
BLIND_SECONDS = 10.0  # telemetry that cannot be read for so long is mentioned

_NO_DATABASE = EngineProblem(
    "database_away", "The database does not answer.", "Start it, or mend SLACKWATER_DATABASE_URL."
)
_NO_STEWARD = EngineProblem(
    "steward_away", "No steward leads: batches are not ended.", "Start one: slackwater steward."
)
_NO_NOTIFIER = EngineProblem(
    "notifier_away", "No notifier runs: webhooks are not delivered.", "Start one: slackwater notifier."
)
_NO_ENGINE = EngineProblem(
    "no_engine", "No worker looks after an engine.", "Start one: slackwater gpu-worker, or slackwater up."
)
_BLIND = EngineProblem(
    "no_telemetry",
    "The engine shows no telemetry that can be read: no batch work is admitted.",
    "Use vLLM, and let GET /metrics through.",
)


class Installation:
    """Looks at most once a second, however many ask."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looking = asyncio.Lock()
        self._seen: tuple[float, dict[str, Any]] | None = None

    async def status(self) -> dict[str, Any]:
        """The document of `GET /status`. Tells no URL and no secret."""
        async with self._looking:
            if self._seen is None or clock.monotonic() - self._seen[0] >= FRESH_SECONDS:
                document = await self._look()
                self._seen = clock.monotonic(), document
            return self._seen[1]

    async def _look(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), self._database.relaxed() as conn:
                return describe(await engines.recent_engines(conn), await overview.overview(conn))
        except (TimeoutError, *AWAY):
            return describe((), None)


def describe(told: Sequence[EngineInfo], seen: Overview | None) -> dict[str, Any]:
    """The document. `seen` is None while the database is away."""
    views = [_engine(engine) for engine in told]
    problems = [*_of_parts(told, seen), *(problem for view in views for problem in view["problems"])]
    queue = {
        "open_batches": seen.open_batches if seen else None,
        "items_waiting": seen.items_waiting if seen else None,
        "items_running": seen.items_running if seen else None,
        "oldest_waiting_seconds": seen.oldest_waiting_seconds if seen else None,
    }
    return {
        "status": _overall(told, seen, bool(problems)),
        "version": version(),
        "at": clock.iso(clock.now()),
        "parts": {
            "api": "ok",
            "database": "ok" if seen else "away",
            "steward": _word(seen.steward if seen else None),
            "notifier": _word(seen.notifier if seen else None),
            "workers": seen.workers if seen else None,
        },
        "engines": views,
        "queue": queue,
        "problems": problems,
    }


def _overall(told: Sequence[EngineInfo], seen: Overview | None, wrong: bool) -> str:
    usable = [engine for engine in told if engine.controlled and not _drained(engine)]
    usable = [engine for engine in usable if _ready(engine) or engine.mode == "managed"]
    if seen is None or not usable:
        return "down"
    return "degraded" if wrong else "ok"


def _of_parts(told: Sequence[EngineInfo], seen: Overview | None) -> Iterator[dict[str, Any]]:
    if seen is None:
        yield asdict(_NO_DATABASE)
        return
    if not seen.steward:
        yield asdict(_NO_STEWARD)
    if not seen.notifier:
        yield asdict(_NO_NOTIFIER)
    if not any(engine.controlled or _problems(engine) for engine in told):
        yield asdict(_NO_ENGINE)


def _engine(engine: EngineInfo) -> dict[str, Any]:
    code = engine.reason or f"engine_{engine.state}"
    return {
        "name": engine.name,
        "model": engine.model,
        "serves": engine.serves,
        "max_model_len": engine.max_model_len,
        "version": engine.version,
        "scheduling_policy": engine.scheduling_policy,
        "mode": engine.mode,
        "state": engine.state if engine.controlled else str(EngineState.DOWN),
        "reason": code,
        "message": reason_messages.gate(
            engine.name, code, engine.signal, engine.value, engine.threshold, max(0.0, engine.held_seconds)
        ),
        "since": clock.iso(engine.since),
        "intake": engine.intake,
        "slots": engine.slots,
        "allowance": engine.allowance,
        "protection": engine.protection,
        "problems": [{"engine": engine.name, **problem} for problem in _problems(engine)],
    }


def _problems(engine: EngineInfo) -> list[dict[str, str]]:
    found = list(engine.problems)
    spoken = engine.controlled or (not _ready(engine) and engine.silent_seconds < SILENT_SECONDS)
    if not spoken and engine.reason != "released":
        heard = reason_messages.duration(engine.silent_seconds)
        message = f"No worker looks after the engine; one was last heard of {heard} ago."
        found.append(asdict(EngineProblem("no_worker", message, "Start its worker: slackwater gpu-worker.")))
    if engine.controlled and engine.reason == "closed_unknown" and engine.held_seconds > BLIND_SECONDS:
        found.append(asdict(_BLIND))
    if engine.controlled and _drained(engine):
        remedy = f"When it may work again: slackwater engine undrain {engine.name}."
        found.append(asdict(EngineProblem("drained", "An operator drains the engine: it takes no new work.", remedy)))
    return found


def _drained(engine: EngineInfo) -> bool:
    return engine.intake != EngineIntake.OPEN


def _ready(engine: EngineInfo) -> bool:
    return engine.state == EngineState.READY


def _word(there: bool | None) -> str:
    return "unknown" if there is None else "ok" if there else "away"
