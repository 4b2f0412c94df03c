"""The state of the installation: its parts, its engines, its queue, and their problems. `GET /status` shows it.

ok         everything works
warning    everything works as far as is known; what is not known, or could be better, is a problem of the severity `warning`.
           That too few callers have streamed to say whether they are protected is none: `callers` says it
degraded   a part has an error or is starting, but requests are answered, or will be
down       no request is answered: no database, or no engine that is ready or starting

A database that only takes too long is not away: what it said last is shown, with its age, and after a minute is not known.
"""

import asyncio
from collections.abc import Iterator, Sequence, Set
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Literal, get_args

from app import __version__, clock
from app.batches import part_problems, protection, why_text
from app.batches.protection import Protection, Verdict
from app.db import embedded
from app.db.pool import Connection, Database
from app.db.timed_reads import Away, Late, TimedReads
from app.duties import standing
from app.duties.standing import Standing
from app.engines import overview as engine_overview
from app.engines import warnings
from app.engines.adoption import EngineProblem
from app.engines.overview import EngineInfo
from app.engines.told_state import NO_WORKER, told, told_state
from app.quantities import duration
from app.queue import overview as queue_overview
from app.queue.item_counts import PLACES
from app.queue.overview import Overview
from app.queue.types import Kind
from app.settings import PrivateTargets, Settings
from app.states import EngineIntake, EngineState
from app.storage import store

Severity = Literal["error", "warning"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

FRESH_SECONDS = 1.0
CALLERS_SECONDS = 10.0  # as often as the gateways store their callers' times
PATIENCE_SECONDS = 2.0
STALE_SECONDS = 60.0  # so long what was read is shown while the database takes too long
NO_TELEMETRY_SECONDS = 10.0  # telemetry that cannot be read for this time is a problem


_NO_ENGINE = EngineProblem(
    "no_engine",
    "No engine has a worker.",
    "slackwater up starts one by itself, see slackwater logs gpu-worker; without up: slackwater gpu-worker.",
)
_NO_TELEMETRY = EngineProblem(
    "no_telemetry",
    "The engine's telemetry cannot be read, so no batch work is admitted.",
    "Allow GET /metrics for the worker, which sends SLACKWATER_ENGINE_API_KEY; not every engine has it: docs/attach.md.",
)
_WAITING = {  # what waits, by its kind, and what ends it
    Kind.BATCH: ("batches", "slackwater batch list, slackwater batch cancel"),
    Kind.STAGE: ("pipelines", "slackwater pipeline list, slackwater pipeline cancel"),
    Kind.RESPONSE: ("background responses", "POST /v1/responses/{id}/cancel"),
    Kind.FLEX: ("flex calls", ""),
    Kind.CHECKPOINT: ("summaries of conversations", ""),
}
_GIVE_MORE = (
    "Give callers more: SLACKWATER_PROTECT=strict for the GPU worker. Other causes: docs/runbooks/CallersSlowed.md."
)


_Known = tuple[Sequence[EngineInfo], Overview, Sequence[Standing], Protection]
_Rooms = tuple[int | None, int | None]


def _rooms_of(settings: Settings) -> _Rooms:
    """The bytes free for objects, and for the embedded database; None: unknown, or not ours to watch. Touches the disks."""
    return store.room(settings), embedded.room(settings)


class Installation:
    """The state, queried at most once a second for any number of requests."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._querying = asyncio.Lock()
        self._asked: asyncio.Future[_Rooms] | None = None
        self._latest: tuple[float, dict[str, Any]] | None = None
        self._reads = TimedReads(database.relaxed, database.failures, PATIENCE_SECONDS)
        self._known: tuple[float, _Known] | None = None
        self._callers: tuple[float, Protection] | None = None

    async def status(self) -> dict[str, Any]:
        """The document of `GET /status`. It has no URL and no secret."""
        async with self._querying:
            if self._latest is None or clock.monotonic() - self._latest[0] >= FRESH_SECONDS:
                document = await self._query()
                self._latest = clock.monotonic(), document
            return self._latest[1]

    async def _query(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "webhooks_to": self._settings.webhook_allow_private,
            "database_embedded": not self._settings.database_url,
        }
        about["room"], about["database_room"] = await self._rooms()
        try:
            known = await self._reads.read(self._read)
        except Away:
            return describe((), None, **about)
        except Late:
            age = clock.monotonic() - self._known[0] if self._known else STALE_SECONDS
            if self._known is None or age >= STALE_SECONDS:
                return describe((), None, slow=True, **about)
            return describe(*self._known[1], slow=True, age=age, **about)
        self._known = clock.monotonic(), known
        return describe(*known, **about)

    async def _read(self, conn: Connection) -> _Known:
        told = await engine_overview.recent_engines(conn)
        callers = await self._protection(conn)
        return told, await queue_overview.overview(conn), await standing.standings(conn), callers

    async def _rooms(self) -> _Rooms:
        """What `_rooms_of` says, unless a disk hangs: then nothing, and it is not asked again before it has answered."""
        if self._asked is None:
            self._asked = asyncio.ensure_future(asyncio.to_thread(_rooms_of, self._settings))
        done, _ = await asyncio.wait([self._asked], timeout=PATIENCE_SECONDS)
        if not done:
            return None, None
        rooms, self._asked = self._asked.result(), None
        return rooms

    async def _protection(self, conn: Connection) -> Protection:
        if self._callers is None or clock.monotonic() - self._callers[0] >= CALLERS_SECONDS:
            self._callers = clock.monotonic(), await protection.present(conn)
        return self._callers[1]


def describe(
    engines: Sequence[EngineInfo],
    overview: Overview | None,
    duties: Sequence[Standing] = (),
    callers: Protection | None = None,
    webhooks_to: PrivateTargets = "off",
    *,
    database_embedded: bool = False,
    room: int | None = None,
    database_room: int | None = None,
    slow: bool = False,
    age: float | None = None,
) -> dict[str, Any]:
    """The document. `overview` and `callers` are None while the database does not answer. `webhooks_to`: the addresses that are
    not public to which webhooks may go. `database_embedded`: the database is the one that `slackwater up` runs. `room`: the
    bytes free for objects; None: unknown. `database_room`: those for the embedded database. `slow`: the database took too long,
    and `age` says when the rest was read.
    """
    inside, young = (overview.inside, part_problems.young(overview)) if overview else ({}, None)
    views = [_engine(engine, young, *inside.get(engine.name, (None, None))) for engine in engines]
    problems = [_problem(part_problems.database_slow(PATIENCE_SECONDS, age), "warning")] if slow else []
    problems += [] if slow and overview is None else _of_parts(engines, overview, young, embedded=database_embedded)
    problems += [
        _problem(full(left))
        for full, left in ((part_problems.database_full, database_room), (part_problems.store_full, room))
        if left is not None and left < part_problems.LEAST_ROOM
    ]
    problems += [*map(_stuck, (each for each in duties if each.stuck))]
    problems += _slowed(callers)
    problems += [problem for view in views for problem in view["problems"]]
    problems += _unserved(engines, overview)
    problems.sort(key=lambda problem: SEVERITIES.index(problem["severity"]))
    return {
        "status": _overall(engines, overview, {problem["severity"] for problem in problems}, slow=slow),
        "version": __version__,
        "at": clock.iso(clock.now()),
        "parts": {
            "api": "ok",
            "database": "slow" if slow else "ok" if overview else "away",
            "steward": _part_state(overview.steward if overview else None),
            "notifier": _part_state(overview.notifier if overview else None),
            "maintenance": _part_state(overview.maintenance if overview else None),
            "workers": overview.workers if overview else None,
        },
        "webhooks": {"allow_private": webhooks_to},
        "callers": _callers(callers),
        "engines": views,
        "queue": _queue(overview),
        "duties": [_duty(each) for each in duties],
        "problems": problems,
    }


def _problem(problem: EngineProblem, severity: Severity = "error", **of: str) -> dict[str, str]:
    return {**of, **asdict(problem), "severity": severity}


def _slowed(callers: Protection | None) -> Iterator[dict[str, str]]:
    if callers is not None and callers.verdict == Verdict.SLOWED:
        yield _problem(EngineProblem("callers_slowed", f"{callers.headline}. {callers.details}", _GIVE_MORE))


def _queue(overview: Overview | None) -> dict[str, Any]:
    """The open batches, those of them that wait only for money, where their items are, and how long the oldest that is queued has
    waited, whatever for.
    """
    items = overview.items if overview else None
    return {
        "open_batches": overview.open_batches if overview else None,
        "waiting_for_money": overview.moneyless if overview else None,
        **{f"items_{place}": getattr(items, place) if items else None for place in PLACES},
        "oldest_waiting_seconds": overview.oldest_waiting_seconds if overview else None,
    }


def _callers(found: Protection | None) -> dict[str, Any]:
    """Whether callers of the last hour were protected."""
    if found is None:
        return {"verdict": "unknown", "headline": "Whether callers are protected is not known", "details": ""}
    return {"verdict": found.verdict, "headline": found.headline, "details": found.details}


def _duty(stands: Standing) -> dict[str, Any]:
    return {
        "name": stands.duty.name,
        "about": stands.duty.about,
        "succeeded_at": clock.iso(stands.succeeded_at) if stands.succeeded_at else None,
        "took_seconds": None if stands.took_ms is None else stands.took_ms / 1000,
        "due_at": clock.iso(stands.due_at),
        "error": stands.fault,
    }


def _stuck(stands: Standing) -> dict[str, str]:
    duty = stands.duty
    since = f"has not succeeded for {duration(stands.unsuccessful_seconds)}"
    why = f" It fails: {stands.fault}." if stands.fault else ""
    remedy = "Its words are in the log: slackwater logs maintenance."
    return _problem(EngineProblem("duty_stuck", f"The duty {duty.name} {since}; it {duty.about}.{why}", remedy))


def _overall(engines: Sequence[EngineInfo], overview: Overview | None, severities: Set[str], *, slow: bool) -> str:
    if slow and overview is None:
        return "degraded" if "error" in severities else "warning"
    usable = [engine for engine in engines if engine.alive and not _drained(engine)]
    usable = [engine for engine in usable if _ready(engine) or engine.mode == "managed"]
    if overview is None or not usable:
        return "down"
    return "degraded" if "error" in severities else "warning" if severities else "ok"


def _of_parts(
    engines: Sequence[EngineInfo], overview: Overview | None, young: float | None, *, embedded: bool
) -> Iterator[dict[str, str]]:
    if overview is None:
        yield _problem(part_problems.database_away(embedded=embedded))
        return
    for problem, error in part_problems.of_parts(overview, young):
        yield _problem(problem, "error" if error else "warning")
    if not any(engine.alive or _errors(engine, None) for engine in engines):
        yield _problem(_NO_ENGINE)


def _engine(engine: EngineInfo, young: float | None, batch: int | None, sync: int | None) -> dict[str, Any]:
    state = told_state(engine.state, engine.mode, engine.reason, has_worker=engine.alive)
    said = told(engine)
    return {
        "name": engine.name,
        "model": engine.model,
        "serves": engine.serves,
        "max_model_len": engine.max_model_len,
        "version": engine.version,
        "scheduling_policy": engine.scheduling_policy,
        "mode": engine.mode,
        "state": str(state),
        "reason": said.code,
        "message": why_text.engine(engine.name, engine),
        "since": clock.iso(clock.now() - timedelta(seconds=said.seconds)),
        "intake": engine.intake,
        "slots": engine.slots if engine.alive else None,
        "allowance": engine.allowance if engine.alive else None,
        "batch_in_flight": batch,
        "sync_in_flight": sync,
        "protection": engine.protection if engine.alive and _ready(engine) else None,  # else it has not said
        "problems": [
            *(_problem(error, engine=engine.name) for error in _errors(engine, young)),
            *(_problem(warning, "warning", engine=engine.name) for warning in _warnings(engine, young)),
        ],
    }


def _workerless(engine: EngineInfo) -> bool:
    return told(engine).code == NO_WORKER and engine.reason != "released"


def _awaited(engine: EngineInfo, young: float | None) -> bool:
    """Whether its worker may only have lost its lease while the database was away."""
    return young is not None and engine.silent_seconds >= young and _workerless(engine)


def _errors(engine: EngineInfo, young: float | None) -> list[EngineProblem]:
    found, _ = warnings.reported(engine.problems, alive=engine.alive, free=engine.free)
    if _workerless(engine) and not _awaited(engine, young):
        silence = duration(engine.silent_seconds)
        message = f"The engine has no worker; the last report of one was {silence} ago."
        found.append(EngineProblem("no_worker", message, part_problems.restarted("gpu-worker")))
    if engine.alive and engine.reason == "closed_unknown" and engine.held_seconds > NO_TELEMETRY_SECONDS:
        found.append(_NO_TELEMETRY)
    if engine.alive and _drained(engine):
        remedy = f"To let it work again: slackwater engine undrain {engine.name}."
        found.append(EngineProblem("drained", "An operator drains the engine: it accepts no new work.", remedy))
    return found


def _overdue(engine: EngineInfo) -> bool:
    """Whether the worker may be gone, though its lease still holds."""
    return engine.alive and engine.overdue


def _warnings(engine: EngineInfo, young: float | None) -> list[EngineProblem]:
    if young is not None and _awaited(engine, young):
        message = f"Its worker has not reported to the database, which started {duration(young)} ago."
        return [EngineProblem("no_worker", message, "Wait: it connects by itself. If not: slackwater logs gpu-worker.")]
    if _overdue(engine):
        message = f"The last report of its worker was {duration(engine.silent_seconds)} ago."
        remedy = "Wait: if the worker is gone, its lease ends within seconds, and others do its work."
        return [EngineProblem("worker_silent", message, remedy)]
    if not engine.alive or not _ready(engine):
        return []
    _, unknown = warnings.reported(engine.problems, alive=engine.alive, free=engine.free)
    return unknown + warnings.of_engine(
        mode=engine.mode,
        dialect=engine.dialect,
        scheduling_policy=engine.scheduling_policy,
        protection=engine.protection,
        errors=[problem["code"] for problem in engine.problems],
    )


def _unserved(engines: Sequence[EngineInfo], overview: Overview | None) -> Iterator[dict[str, str]]:
    """The models with waiting work that none of the engines at work serves. Without such engines, their problems say enough."""
    serving = {engine.model for engine in engines if engine.alive and _ready(engine)}
    waiting = overview.waiting if overview and serving else {}
    for model in sorted(waiting.keys() - serving):
        kinds = [_WAITING[Kind(each)] for each in waiting[model] or [Kind.BATCH]]
        names, ends = " and ".join(name for name, _ in kinds), [end for _, end in kinds if end]
        message = f"{names} for {model} wait, but no engine serves it."
        remedy = "They are kept until one does." + (f" To end them: {'; '.join(ends)}." if ends else "")
        yield _problem(EngineProblem("model_unserved", f"{message[0].upper()}{message[1:]}", remedy), "warning")


def _drained(engine: EngineInfo) -> bool:
    return engine.intake != EngineIntake.OPEN


def _ready(engine: EngineInfo) -> bool:
    return engine.state == EngineState.READY


def _part_state(running: bool | None) -> str:
    return "unknown" if running is None else "ok" if running else "away"
