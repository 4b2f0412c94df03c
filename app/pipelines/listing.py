"""Lists of pipelines with filters, of one account or of all: each with its stages as they are counted."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from app.db import name_prefix
from app.db.pool import Connection
from app.flows.stages import INPUT
from app.pipelines import ids, reads
from app.pipelines import listing_sql as sql
from app.pipelines.reads import PipelineRow, Spent, Sums

MOST_COUNTED = sql.MOST_COUNTED
PAGE_ROWS = 25
_PICO = 10**12


@dataclass(frozen=True, slots=True)
class Filter:
    """Which pipelines a list has. Empty: all. `lifecycle`: open or ended. `waits`: why they pause by themselves; `name`: begins
    with it. `after`, `before`: the pipeline at the end of the page before, or at the begin of the one after.
    """

    tenant_id: int | None = None
    account: str = ""
    lifecycle: str = ""
    state: str = ""
    waits: str = ""
    name: str = ""
    id_range: tuple[UUID, UUID] | None = None
    after: UUID | None = None
    before: UUID | None = None

    def values(self) -> dict[str, Any]:
        """The parameters of the conditions that it has."""
        low, high = self.id_range or (None, None)
        values: dict[str, Any] = {
            "tenant_id": self.tenant_id,
            "account": self.account,
            "state": self.state,
            "waits": self.waits,
            "name": self.name,
            "name_end": name_prefix.end(self.name),
            "id_from": low,
            "id_to": high,
            "after": self.after,
            "before": self.before,
            self.lifecycle or "none": bool(self.lifecycle),
        }
        return {
            name: value for name, value in values.items() if value is not None and value != "" and value is not False
        }


@dataclass(frozen=True, slots=True)
class Step:
    """A stage as a list shows it, by its folded counts. `runs`: it makes requests. `fed`: more items may come."""

    n: int
    name: str
    runs: bool
    final: bool
    fed: bool
    total: int
    ok: int
    failed: int


class Named(NamedTuple):
    """Which pipeline it is."""

    request_id: UUID
    name: str | None

    @property
    def public_id(self) -> str:
        """The id callers see."""
        return ids.format_id(self.request_id)

    @property
    def shown(self) -> str:
        """Its name, else the first digits of its id."""
        return self.name or str(self.request_id)[:8]


@dataclass(frozen=True, slots=True)
class Listed:
    """A pipeline of a list. `steps`: its stages, the input first; `spent`: None: nothing in it has a price."""

    tenant_id: int
    account: str
    row: PipelineRow
    steps: Sequence[Step] = ()
    spent: Spent | None = None

    @property
    def sums(self) -> Sums:
        """The items of all stages, without an input that never runs."""
        ran = [step for step in self.steps if step.n != INPUT or step.runs]
        return Sums(*(sum(getattr(step, name) for step in ran) for name in ("total", "ok", "failed")))


async def page(conn: Connection, wanted: Filter, limit: int = PAGE_ROWS) -> tuple[list[Listed], bool]:
    """A page of pipelines, newest first, and whether there are more in the direction that was asked for. Raises PlaceUnknown."""
    for place in (wanted.after, wanted.before):
        await reads.check_place(conn, wanted.tenant_id, place)
    values = wanted.values()
    found = await (await conn.execute(sql.page(values).encode(), values | {"limit": limit + 1})).fetchall()
    more, found = len(found) > limit, found[:limit]
    if wanted.before is not None:
        found.reverse()
    heads = [_head(row) for row in found]
    return await _with_steps(conn, heads), more


async def one(conn: Connection, tenant_id: int | None, request_id: UUID) -> Listed | None:
    """A pipeline without its stages; None: there is none, or it is another account's."""
    values = {"tenant_id": tenant_id, "request_id": request_id}
    row = await (await conn.execute(sql.ONE, values)).fetchone()
    return None if row is None else _head(row)


async def of_number(conn: Connection, pipeline_id: int) -> Named | None:
    """The pipeline that a batch is a stage of."""
    row = await (await conn.execute(sql.OF_NUMBER, {"pipeline_id": pipeline_id})).fetchone()
    return None if row is None else Named(*row)


async def count_open(conn: Connection, tenant_id: int | None) -> int:
    """How many pipelines are open, at most MOST_COUNTED."""
    [(count,)] = await (await conn.execute(sql.OPEN, {"tenant_id": tenant_id})).fetchall()
    return int(count)


def _head(row: Sequence[Any]) -> Listed:
    return Listed(row[0], row[1], reads.row_of(row[2:]))


async def _with_steps(conn: Connection, heads: Sequence[Listed]) -> list[Listed]:
    ids = [each.row.pipeline_id for each in heads]
    steps, costs = defaultdict[int, list[Step]](list), dict[int, Spent]()
    for pipeline_id, *facts, pico, currency in await (await conn.execute(sql.STAGES, {"pipeline_ids": ids})).fetchall():
        steps[pipeline_id].append(Step(*facts))
        if pico is not None:
            before = costs[pipeline_id].amount if pipeline_id in costs else 0.0
            costs[pipeline_id] = Spent(before + float(pico) / _PICO, currency)
    return [
        Listed(each.tenant_id, each.account, each.row, steps[each.row.pipeline_id], costs.get(each.row.pipeline_id))
        for each in heads
    ]
