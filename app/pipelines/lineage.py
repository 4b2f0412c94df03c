"""What became of one line of the input, stage by stage: its items, their state and why, their models and tokens.

A number is arithmetic, so the items are found without a table. The number of a pack by value is not: there, the items before it
are read and grouped once more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app import clock, crypto
from app.db import day_tables
from app.db.pool import Connection, Database
from app.errors import NotFound
from app.flows.stages import INPUT, ByValue, Stage
from app.pipelines import grouping, spans, waiting
from app.pipelines import lineage_sql as sql
from app.pipelines import running as pipelines
from app.pipelines.reading import Reader
from app.pipelines.reads import PipelineSight, StageSight
from app.pipelines.spans import Span
from app.queue import items
from app.queue.items import ItemFacts
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store

MOST_SHOWN = 1000  # items of a stage that come from one line


@dataclass(frozen=True, slots=True)
class Trace:
    """What became of the line in one stage. `items`: the first of them, at most MOST_SHOWN; `truncated`: there are more.
    `shared`: they have parts of other lines, too. `state`: of all its items: waiting, failed, done; of none: to_come, dropped.
    `waits`: what the stage waits for besides the queue.
    """

    stage: StageSight
    items: Sequence[ItemFacts]
    truncated: bool
    shared: bool
    state: str
    waits: str | None

    @property
    def why(self) -> str | None:
        """Why it has no item; None: it has some."""
        if self.items:
            return None
        return self.waits if self.state == "to_come" else _DROPPED


_DROPPED = "its condition did not hold, or what it comes from was dropped or cancelled"


async def trace(database: Database, settings: Settings, sight: PipelineSight, custom_id: str) -> list[Trace]:
    """The lineage of the line with this name, by stage. Raises NotFound, KeysUnavailable, StorageError."""
    first = sight.stages[INPUT]
    async with database.relaxed() as conn:
        values = {"batch_id": first.row.batch_id, "reference": custom_id}
        row = await (await day_tables.execute(conn, sql.FIND, first.row.batch_id, values)).fetchone()
    if row is None:
        message = f"The input of the pipeline has no line with the custom_id {custom_id[:60]!r}"
        raise NotFound(f"{message}; a line without one is named by its number, from 0")
    found = await _spans(database, settings, sight, row[0])
    async with database.relaxed() as conn:
        return [await _trace(conn, settings, sight, each, found[each.row.n]) for each in sight.stages]


async def of(
    database: Database, settings: Settings, sight: PipelineSight, custom_id: str, *, words: bool = True
) -> dict[str, Any]:
    """The lineage of the line with this name, as callers read it. `words`: with messages of errors, which may quote it.

    Raises as `trace`.
    """
    stages = [_stage(each, words) for each in await trace(database, settings, sight, custom_id)]
    return {"object": "pipeline.item", "pipeline": sight.row.public_id, "custom_id": custom_id, "stages": stages}


def _stage(of: Trace, words: bool) -> dict[str, Any]:
    stage = of.stage
    items = of.items if words else [each.without_words() for each in of.items]
    return {
        "stage": stage.row.name,
        "n": stage.row.n,
        "model": stage.status.model if stage.status.endpoint else None,
        "items": [_item(each, stage, of.waits) for each in items],
        "truncated": of.truncated,
        "shared": of.shared,
        "state": of.state,
        "why": of.why,
    }


async def _spans(database: Database, settings: Settings, sight: PipelineSight, line: int) -> dict[int, Span]:
    """By stage, the numbers of the items that come from this line of the input."""
    found = {INPUT: Span([range(line, line + 1)])}
    for stage in sight.flow.stages:
        if isinstance(stage.pack, ByValue):
            parent = found[stage.parent]
            packs = await _packs(database, settings, sight, stage, parent.stop)
            found[stage.number] = await asyncio.to_thread(spans.in_packs, stage.pack, packs, parent)
        else:
            found[stage.number] = spans.below(sight.flow, stage, found)
    return found


async def _packs(
    database: Database, settings: Settings, sight: PipelineSight, stage: Stage, below: int
) -> Sequence[Sequence[int]]:
    """The parts of each pack by value, as far as their numbers are below this one; none while it is not known which there are."""
    keyring, pipeline_id = Keyring.of(settings), sight.row.pipeline_id
    running, _ = (await pipelines.load(database, keyring, [pipeline_id]))[pipeline_id]
    if not below or not running.stages[stage.number].grouped:
        return ()
    reader = Reader(database, Store.of(settings), keyring, crypto.secret_key(settings))
    return (await grouping.groups(reader, running, stage, below=below)).packs


async def _trace(conn: Connection, settings: Settings, sight: PipelineSight, stage: StageSight, span: Span) -> Trace:
    link = waiting.of_stage(sight.row, sight.stages, stage)
    found = await _facts(conn, settings, stage, span)
    shown, truncated = found[:MOST_SHOWN], len(found) > MOST_SHOWN
    states = {state_of(each, stage) for each in shown}
    if truncated:
        states = await _states(conn, stage, span)
    absent = "to_come" if stage.status.fed else "dropped"
    state = next((each for each in ("waiting", "failed", "done") if each in states), absent)
    return Trace(stage, shown, truncated, span.shared, state, link.message if link else None)


async def _facts(conn: Connection, settings: Settings, stage: StageSight, span: Span) -> list[ItemFacts]:
    """The first items of a span, one more than are shown."""
    status, ring, found = stage.status, Keyring.of(settings), list[ItemFacts]()
    for each in span.ranges:
        limit = min(len(each), MOST_SHOWN + 1 - len(found))
        page = await items.page(conn, ring, status.batch_id, status.run, after=each.start, limit=limit)
        found += [item for item in page if item.seq in each]
        if len(found) > MOST_SHOWN:
            break
    return found


async def _states(conn: Connection, stage: StageSight, span: Span) -> set[str]:
    """The states that the items of a span have."""
    lows, highs = [each.start for each in span.ranges], [each.stop for each in span.ranges]
    values = {"batch_id": stage.status.batch_id, "run": stage.status.run, "lows": lows, "highs": highs}
    rows = await day_tables.execute(conn, sql.STATES, stage.status.batch_id, values)
    return {_state(None if ok is None else ok == 1, stage) for (ok,) in await rows.fetchall()}


def state_of(item: ItemFacts, stage: StageSight) -> str:
    """Of one item: done, failed or waiting. A line of an input that never runs is done."""
    return _state(item.ok, stage)


def _state(ok: bool | None, stage: StageSight) -> str:
    runs = stage.row.n != INPUT or bool(stage.status.endpoint)
    return ("done" if ok else "failed") if ok is not None else "waiting" if runs else "done"


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
