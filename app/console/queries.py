"""The console's own reads: rows as the pages need them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.types.json import Jsonb

from app.console import queries_sql as sql
from app.db import day_tables, name_prefix
from app.db.pool import Connection
from app.engines.overview import heard
from app.engines.told_state import told
from app.files import ids
from app.states import BatchState, EngineState

MOST_COUNTED = sql.MOST_COUNTED
PAGE_ROWS = 50
_MOST_EVENTS = 12


class RailCounts(NamedTuple):
    """The numbers of the rail. At MOST_COUNTED there may be more batches."""

    open_batches: int
    engines_ready: int
    engines: int


async def rail_counts(conn: Connection, tenant_id: int | None) -> RailCounts:
    """The open batches of an account, or all; the engines of the installation."""
    [row] = await (await conn.execute(sql.RAIL, {"tenant_id": tenant_id})).fetchall()
    return RailCounts(*row)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch by its finished chunks: counts lag behind by those that workers have. `pipeline_id`: of which it is a
    stage.
    """

    batch_id: int
    request_id: UUID
    tenant_id: int
    account: str
    model: str
    state: BatchState
    run: int
    total: int
    ok: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    created_at: datetime
    opened_at: datetime
    finalized_at: datetime | None
    expires_at: datetime | None
    tags: Sequence[str]
    metadata: Mapping[str, str] | None
    policy: Mapping[str, Any] | None
    endpoint: str
    line_id: int | None
    traceparent: str | None
    given_name: str | None = None
    est_tokens: int | None = None
    pipeline_id: int | None = None

    @property
    def done(self) -> int:
        """Items with a result."""
        return self.ok + self.failed

    @property
    def is_input(self) -> bool:
        """Whether its items are lines that a pipeline begins with, and never run."""
        return self.pipeline_id == self.batch_id and not self.endpoint

    @property
    def name(self) -> str:
        """What a person calls it, else the first digits of its id."""
        return self.given_name or str(self.request_id)[:8]


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Which batches a list shows. Empty: all. `lifecycle`: open or ended. `waits`: a code of `why`; `error`: a class of failures;
    `name`: begins with it.
    """

    tenant_id: int | None = None
    account: str = ""
    lifecycle: str = ""
    state: str = ""
    failed: bool = False
    model: str = ""
    tags: Sequence[str] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    waits: str = ""
    error: str = ""
    name: str = ""
    id_range: tuple[UUID, UUID] | None = None
    after: tuple[datetime, UUID] | None = None
    before: tuple[datetime, UUID] | None = None

    def values(self) -> dict[str, Any]:
        """The parameters of the conditions that it has."""
        values: dict[str, Any] = {
            "tenant_id": self.tenant_id,
            "account": self.account,
            "state": self.state,
            "failed": self.failed,
            "model": self.model,
            "waits": self.waits,
            "error": self.error,
            "name": self.name,
            "name_end": name_prefix.end(self.name),
            "tags": list(self.tags),
            "meta": Jsonb(dict(self.meta)) if self.meta else None,
            self.lifecycle or "none": bool(self.lifecycle),
        }
        if self.id_range:
            values["id_from"], values["id_to"] = self.id_range
        if self.after:
            values["after_at"], values["after"] = self.after
        if self.before:
            values["before_at"], values["before"] = self.before
        return {name: value for name, value in values.items() if value}


async def batch(conn: Connection, tenant_id: int | None, request_id: UUID) -> BatchRow | None:
    """One batch, or a stage of a pipeline; None: there is none, or it is another account's."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(sql.ONE, values)).fetchone()
    return None if row is None else _batch(row)


async def selected(conn: Connection, tenant_id: int | None, request_ids: Collection[UUID]) -> list[BatchRow]:
    """The batches with these ids, newest first, without those of other accounts."""
    values = {"tenant_id": tenant_id, "ids": list(request_ids)}
    return [_batch(row) for row in await (await conn.execute(sql.SELECTED, values)).fetchall()]


async def batches(conn: Connection, chosen: BatchFilter, limit: int = PAGE_ROWS) -> tuple[list[BatchRow], bool]:
    """A page of batches, newest first, and whether there are more in the direction that was asked for."""
    values = chosen.values()
    rows = await (await conn.execute(sql.page(values).encode(), values | {"limit": limit + 1})).fetchall()
    found = [_batch(row) for row in rows[:limit]]
    return (found[::-1] if chosen.before else found), len(rows) > limit


def _batch(row: Sequence[Any]) -> BatchRow:
    values = [*row[:5], BatchState(row[5]), *row[6:]]
    return BatchRow(*values)


async def progress(conn: Connection, batch_id: int, total: int) -> tuple[list[datetime], int]:
    """The times at which a sample of a batch's items was done, in order, and the size of the sample."""
    values = {"batch_id": batch_id, "total": total}
    rows = await (await day_tables.execute(conn, sql.PROGRESS, batch_id, values)).fetchall()
    return [at for (at,) in rows], min(total, sql.MOST_SAMPLED)


class Submitted(NamedTuple):
    """How a batch came: the name of its key, its labels, and its file."""

    key: str | None
    workflow: str | None
    task: str | None
    input_file_id: str | None
    window: str | None
    filename: str | None
    bytes: int | None


async def submitted(conn: Connection, row: BatchRow, input_file_id: str | None = None) -> Submitted:
    """How a batch came."""
    values = {"line_id": row.line_id, "request_id": row.request_id, "file_id": None}
    found = Submitted(*(await (await conn.execute(sql.SUBMITTED, values)).fetchall())[0])
    if found.input_file_id:
        values["file_id"] = ids.parse_id(found.input_file_id)
        found = Submitted(*(await (await conn.execute(sql.SUBMITTED, values)).fetchall())[0])
    return found


class EventRow(NamedTuple):
    """An event of a batch, and one of its deliveries; without an endpoint it has none."""

    kind: str
    at: datetime
    endpoint: str | None
    state: str | None
    attempts: int | None


async def events(conn: Connection, batch_id: int) -> list[EventRow]:
    """The newest events of a batch with their deliveries, newest first."""
    values = {"batch_id": batch_id, "limit": _MOST_EVENTS}
    return [EventRow(*row) for row in await (await conn.execute(sql.EVENTS, values)).fetchall()]


@dataclass(frozen=True, slots=True)
class EngineRow:
    """An engine as its worker last reported it. `held_seconds`: since state and reason are what they are.
    `batch_in_flight`: batch requests that are in it. `silent_seconds`: since that report. `overdue`: more of them were due since.
    `detail`: how the process of one that does not serve ended. `free`: no worker has it. `usual_seconds`: how long its last start
    took.
    """

    engine_id: int
    name: str
    model: str
    protection: str
    state: str
    reason: str | None
    signal: str | None
    value: float | None
    threshold: float | None
    held_seconds: float
    slots: int
    allowance: int
    batch_in_flight: int
    sync_in_flight: int
    alive: bool
    intake: str
    problems: Sequence[Mapping[str, str]]
    silent_seconds: float
    overdue: bool
    mode: str = "attached"
    detail: str | None = None
    free: bool = False
    usual_seconds: float | None = None

    @property
    def heard(self) -> str:
        """How long ago its worker reported it."""
        return heard(self.silent_seconds, silent=self.overdue or not self.alive)

    @property
    def ready(self) -> bool:
        """Whether it answers and has a worker."""
        return self.alive and self.state == EngineState.READY

    @property
    def code(self) -> str:
        """The reason of its gate, or one made from its state."""
        return told(self).code


async def served_models(conn: Connection) -> list[str]:
    """The models that an engine serves now, by name."""
    return sorted({each.model for each in await engines(conn) if each.ready and each.model})


async def engines(conn: Connection) -> list[EngineRow]:
    """Every engine that has a worker, or had one within a day, by name."""
    return [EngineRow(*row) for row in await (await conn.execute(sql.ENGINES)).fetchall()]


class WaitRow(NamedTuple):
    """How many open batches wait for `code` (running: they do not), since when the first does without a break, and
    their tokens that are left.
    """

    code: str
    batches: int
    since: datetime
    tokens: float | None


async def waits(conn: Connection, tenant_id: int | None) -> list[WaitRow]:
    """What open batches wait for, as the steward noted it in its last round."""
    rows = await (await conn.execute(sql.WAITS, {"tenant_id": tenant_id})).fetchall()
    return [WaitRow(*row) for row in rows]
