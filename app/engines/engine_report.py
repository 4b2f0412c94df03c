"""What a worker says of its engine with each heartbeat. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from app.engines.adoption import EngineProblem
from app.engines.dialects import VLLM, DialectName

DRAINING = "draining"  # the reason that a worker reports while its engine is drained


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker knows about its engine in addition to its state. `protection`: `inside` if the engine's scheduler (L2)
    divides each step between synchronous and batch requests, `outside` if only the allowance (L1) is controlled. `slots`:
    requests that it runs at once, None if nothing new is known.
    """

    served_name: str | None = None
    serves: tuple[str, ...] = ()
    max_model_len: int | None = None
    version: str | None = None
    scheduling_policy: str | None = None
    protection: Literal["inside", "outside"] = "outside"
    problems: tuple[EngineProblem, ...] = ()
    dialect: DialectName = VLLM.name
    slots: int | None = None


NOTHING_KNOWN = Facts()


@dataclass(frozen=True, slots=True)
class EngineReport:
    """The new values of the engine's row: its state and its reason. `signal` was `value`, compared with `threshold`.

    `detail`: a telemetry problem, or how its process ended. `start_seconds`: how long its last start took, None if not measured
    anew. `expected_seconds`: time until it should answer. `hungry`: its worker waits for work. `batch_in_flight`: items whose
    results are not stored; `in_engine`: those of them in the engine now, as (batch id, items).
    """

    ready: bool
    reason: str | None
    allowance: int
    signal: str | None = None
    value: float | None = None
    threshold: float | None = None
    detail: str | None = None
    start_seconds: float | None = None
    expected_seconds: float | None = None
    facts: Facts = NOTHING_KNOWN
    batch_in_flight: int = 0
    sync_in_flight: int = 0
    hungry: bool = False
    in_engine: tuple[tuple[int, int], ...] = ()

    @property
    def urgent(self) -> tuple[bool, str | None, bool, str | None]:
        """The values whose change is reported at once: readiness, its reason, that a drained engine is empty, and how its process
        ended.
        """
        empty = self.reason == DRAINING and not (self.batch_in_flight or self.sync_in_flight)
        return self.ready, self.reason, empty, None if self.ready else self.detail


# The columns of reports in SQL, with their types. Lists are JSON, because an array of arrays would be taken for one.
REPORT_COLUMNS = {
    "engine_id": "bigint",
    "worker_id": "bigint",
    "ready": "bool",
    "reason": "text",
    "allowance": "int2",
    "signal": "text",
    "value": "float8",
    "threshold": "float8",
    "detail": "text",
    "start_seconds": "float8",
    "expected_seconds": "float8",
    "batch_in_flight": "int",
    "sync_in_flight": "int",
    "in_engine": "text",
    "served_name": "text",
    "serves": "text",
    "max_model_len": "int",
    "version": "text",
    "scheduling_policy": "text",
    "protection": "text",
    "problems": "text",
    "dialect": "text",
    "slots": "int",
}


def columns(reports: Sequence[tuple[int, int, EngineReport]]) -> dict[str, list[Any]]:
    """The reports on engines, each with the ids of engine and worker, as the columns of `REPORT_COLUMNS`."""
    rows = [_row(*each) for each in reports]
    return {name: [row[name] for row in rows] for name in REPORT_COLUMNS}


def _row(engine_id: int, worker_id: int, report: EngineReport) -> dict[str, Any]:
    facts = report.facts
    row: dict[str, Any] = {"engine_id": engine_id, "worker_id": worker_id}
    for name, kind in REPORT_COLUMNS.items():
        if name in row:
            continue
        value = getattr(report if hasattr(report, name) else facts, name)
        row[name] = float(value) if kind == "float8" and value is not None else value
    return row | {
        "in_engine": json.dumps(dict(report.in_engine)),
        "serves": json.dumps(facts.serves),
        "problems": json.dumps([asdict(problem) for problem in facts.problems]),
    }
