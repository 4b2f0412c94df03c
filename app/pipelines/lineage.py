"""What became of one line of the input, stage by stage: its items, their state and why, their models and tokens.

A number is arithmetic, so the items are found without a table. Where parts of several lines are packed by value, the pack of a
line is known only by its content; such packs, and what comes of them, are named as not traced.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import clock
from app.db import day_tables
from app.db.pool import Connection, Database
from app.errors import NotFound
from app.flows.counting import child_number
from app.flows.stages import INPUT, ByValue, Definition
from app.pipelines import lineage_sql as sql
from app.pipelines import waiting
from app.pipelines.reads import PipelineSight, StageSight
from app.queue import items
from app.queue.items import ItemFacts
from app.sealing.keyring import Keyring
from app.settings import Settings

MOST_SHOWN = 1000  # items of a stage that come from one line


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers of a stage's items that one line may have: `low` to `high`. `shared`: they have parts of other lines, too."""

    low: int
    high: int
    shared: bool = False


def spans(flow: Definition, number: int) -> dict[int, Span | None]:
    """By stage, the numbers of the items that come from a line of the input. None: they are not known by arithmetic."""
    found: dict[int, Span | None] = {INPUT: Span(number, number)}
    for stage in flow.stages:
        above = found[stage.parent]
        if above is None or isinstance(stage.pack, ByValue):
            found[stage.number] = None
            continue
        last = stage.each.most - 1 if stage.each else 0
        low, high = child_number(flow, stage, above.low), child_number(flow, stage, above.high, last)
        whole = stage.pack is None or (not above.shared and low == high == number and stage.pack is not None)
        found[stage.number] = Span(low, high, above.shared or (stage.pack is not None and not whole))
    return found


@dataclass(frozen=True, slots=True)
class Trace:
    """What became of the line in one stage. `items`: at most MOST_SHOWN; None: not known by arithmetic. `shared`: they have
    parts of other lines, too. `waits`: what the stage waits for besides the queue.
    """

    stage: StageSight
    items: Sequence[ItemFacts] | None
    shared: bool
    waits: str | None

    @property
    def state(self) -> str:
        """Of all its items: waiting, failed, done; of none: to_come, dropped, not_traced."""
        if self.items is None:
            return "not_traced"
        if not self.items:
            return "to_come" if self.stage.status.fed else "dropped"
        states = [state_of(each, self.stage) for each in self.items]
        return next((each for each in ("waiting", "failed") if each in states), "done")

    @property
    def why(self) -> str | None:
        """Why it has no item; None: it has some."""
        if self.items:
            return None
        return self.waits if self.state == "to_come" else _ABSENT[self.state]


_ABSENT = {
    "not_traced": "its items are packed by value",
    "dropped": "its condition did not hold, or what it comes from was dropped or cancelled",
}


async def trace(database: Database, settings: Settings, sight: PipelineSight, custom_id: str) -> list[Trace]:
    """The lineage of the line with this name, by stage. Raises NotFound."""
    first = sight.stages[INPUT]
    async with database.relaxed() as conn:
        values = {"batch_id": first.row.batch_id, "reference": custom_id}
        row = await (await day_tables.execute(conn, sql.FIND, first.row.batch_id, values)).fetchone()
        if row is None:
            message = f"The input of the pipeline has no line with the custom_id {custom_id[:60]!r}"
            raise NotFound(f"{message}; a line without one is named by its number, from 0", code=404)
        found = spans(sight.flow, row[0])
        return [await _trace(conn, settings, sight, each, found[each.row.n]) for each in sight.stages]


async def of(
    database: Database, settings: Settings, sight: PipelineSight, custom_id: str, *, words: bool = True
) -> dict[str, Any]:
    """The lineage of the line with this name, as callers read it. `words`: with messages of errors, which may quote it.

    Raises NotFound.
    """
    stages = [_stage(each, words) for each in await trace(database, settings, sight, custom_id)]
    return {"object": "pipeline.item", "pipeline": sight.row.public_id, "custom_id": custom_id, "stages": stages}


def _stage(of: Trace, words: bool) -> dict[str, Any]:
    stage = of.stage
    items = of.items or () if words else [each.without_words() for each in of.items or ()]
    return {
        "stage": stage.row.name,
        "n": stage.row.n,
        "model": stage.status.model if stage.status.endpoint else None,
        "items": [_item(each, stage, of.waits) for each in items],
        "shared": of.shared,
        "state": of.state,
        "why": of.why,
    }


async def _trace(
    conn: Connection, settings: Settings, sight: PipelineSight, stage: StageSight, span: Span | None
) -> Trace:
    link = waiting.of_stage(sight.row, sight.stages, stage)
    waits = link.message if link else None
    if span is None:
        return Trace(stage, None, shared=True, waits=waits)
    return Trace(stage, await _facts(conn, settings, stage, span), span.shared, waits)


async def _facts(conn: Connection, settings: Settings, stage: StageSight, span: Span) -> list[ItemFacts]:
    limit = min(span.high - span.low + 1, MOST_SHOWN)
    status, ring = stage.status, Keyring.of(settings)
    found = await items.page(conn, ring, status.batch_id, status.run, after=span.low, limit=limit)
    return [each for each in found if each.seq <= span.high]


def state_of(item: ItemFacts, stage: StageSight) -> str:
    """Of one item: done, failed or waiting. A line of an input that never runs is done."""
    runs = stage.row.n != INPUT or bool(stage.status.endpoint)
    return ("done" if item.ok else "failed") if item.ok is not None else "waiting" if runs else "done"


def _item(facts: ItemFacts, stage: StageSight, link: str | None) -> dict[str, Any]:
    state = state_of(facts, stage)
    return {
        "seq": facts.seq,
        "custom_id": facts.reference,
        "state": state,
        "why": facts.message if state == "failed" else link if state == "waiting" else None,
        "model": facts.model or (stage.status.model if stage.status.endpoint else None),
        "run": facts.run,
        "engine": facts.engine,
        "prompt_tokens": facts.prompt_tokens,
        "completion_tokens": facts.completion_tokens,
        "finished_at": clock.iso(facts.finished_at),
    }
