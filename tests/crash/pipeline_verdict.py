"""Compares pipelines with what a recomputation says of them: every item of every stage is there once, with its lineage."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from app.flows.items import Asked, Copied, Parked, Refused
from app.pipelines import stored_flow
from tests.crash.examine import GIVEN_UP
from tests.crash.history import History
from tests.crash.pipelines import NAME, Pipeline, Pipelines
from tests.crash.system import System
from tests.flows import recomputation
from tests.flows.recomputation import Level, Place, Stored

Rows = Callable[[str], Awaitable[Sequence[tuple[Any, ...]]]]

_STORED = """
select s.n, p.seq, p.est_tokens > 0, p.body, r.run, r.ok, r.body
from pipeline q join stage s using (pipeline_id) join item_payload p using (batch_id)
left join item_result r on (r.batch_id, r.seq) = (p.batch_id, p.seq)
where q.request_id = %s order by s.n, p.seq, r.ok, r.run desc"""
_STAGES = """
select s.n, s.ran, s.passed, s.dropped, s.refused, b.total, b.ok + b.failed, b.fed or b.feeds, b.finalized_at is not null
from pipeline q join stage s using (pipeline_id) join batch b using (batch_id) where q.request_id = %s order by s.n"""
# A retry of a pipeline that was cancelled goes on with the results that it has not handed on, so their markers stay.
_LEFT_OVER = """
with ended_early as materialized (
  select s.batch_id from pipeline p join stage s using (pipeline_id) where p.state in ('cancelled', 'expired'))
select 'markers', count(*) from handoff where batch_id not in (select batch_id from ended_early)
union all select 'packs that wait', count(*) from gather
  where open <> 0 and batch_id not in (select batch_id from ended_early)
union all select 'parked items', count(*) from parked where state = 'waiting'"""


async def judge(system: System, history: History, pipelines: Pipelines) -> None:
    """Compare every pipeline with what a recomputation of its input and its results has. Call it when the system is at rest."""
    prompts: set[str] = set()
    for each in pipelines.accepted:
        prompts |= await _judge(system, history, each)
    await judge_left_over(history, system.postgres.rows)
    for arrival in history.arrivals:
        if arrival.prompt.startswith(NAME) and arrival.prompt not in prompts:
            history.wrong("kill_wrong_lineage", f"an engine was sent {arrival.prompt!r}, which no stage has")
    [(stored,)] = await system.postgres.rows("select count(*) from pipeline")
    if stored != len(pipelines.accepted):
        history.wrong("kill_doubled", f"{stored} pipelines, {len(pipelines.accepted)} were accepted")
    history.notes["pipelines"] = len(pipelines.accepted)
    history.notes["pipelines with other ends"] = sum(each.state != "completed" for each in pipelines.accepted)


async def judge_left_over(history: History, rows: Rows) -> None:
    """Nothing waits to be handed on, except in pipelines that ended early. `rows`: runs a query."""
    for what, n in await rows(_LEFT_OVER):
        if n:
            history.wrong("kill_lost", f"{n} {what} left over")


@dataclass(slots=True)
class Found:
    """An item as it is stored. `result`: its answer, else its latest error."""

    asked: bool
    body: bytes
    result: Stored | None = None


async def _judge(system: System, history: History, of: Pipeline) -> set[str]:
    """Judge one pipeline. Returns the prompts of its items."""
    request_id = UUID(of.public_id.removeprefix("pipe_"))
    found: dict[Place, Found] = {}
    answers, runs = Counter[Place](), Counter[tuple[Place, int]]()
    for n, seq, asked, body, run, ok, result in await system.postgres.rows(_STORED, request_id):
        place = n, seq
        item = found.setdefault(place, Found(asked, bytes(body)))
        if run is not None:
            item.result = item.result if item.result and item.result.ok else Stored(ok == 1, bytes(result))
            answers[place] += ok == 1
            runs[place, run] += 1
            if GIVEN_UP.encode() in item.result.body:
                history.wrong("innocent_given_up", f"{of.key} {place}")
    for place, n in answers.items():
        if n > 1 or any(times > 1 for (where, _), times in runs.items() if where == place):
            history.wrong("kill_doubled", f"{of.key} {place} has {n} answers")
    flow = stored_flow.read(stored_flow.of_definition(of.definition | {"input": {"items": True}}))
    results = {place: item.result for place, item in found.items() if item.result}
    levels = recomputation.recompute(flow, of.lines, results)
    for n, level in enumerate(levels):
        _compare(history, of, n, level, {seq: item for (stage, seq), item in found.items() if stage == n})
    if of.state != "cancelled":
        _counts(history, of, levels, await system.postgres.rows(_STAGES, request_id))
    history.notes["items of pipelines"] += len(found)
    bodies = (item.child.body for level in levels for item in level.items.values() if isinstance(item.child, Asked))
    return {str(body["messages"][-1]["content"]) for body in bodies}


def _compare(history: History, of: Pipeline, n: int, level: Level, found: dict[int, Found]) -> None:
    """One stage: which items it has, and what each was made of."""
    if extra := found.keys() - level.items.keys():
        history.wrong("kill_doubled", f"{of.key} stage {n} has items {sorted(extra)[:5]} that nothing made", len(extra))
    if of.state != "cancelled":
        if missing := level.items.keys() - found.keys():
            history.wrong("kill_lost", f"{of.key} stage {n} lacks items {sorted(missing)[:5]}", len(missing))
        if level.waiting:
            history.wrong("kill_lost", f"{of.key} stage {n} waits for {sorted(level.waiting)[:5]}", len(level.waiting))
    for seq in found.keys() & level.items.keys():
        child, item = level.items[seq].child, found[seq]
        if not _as_made(child, item):
            history.wrong("kill_wrong_lineage", f"{of.key} stage {n} item {seq}: {item}, but made is {child}"[:400])


def _as_made(child: Any, item: Found) -> bool:
    """Whether an item is what its parents make."""
    match child:
        case Asked():
            return item.asked and orjson.loads(item.body) == child.body
        case Copied(ok, body):
            return not item.asked and item.result == Stored(ok, body)
        case Refused(error):
            return not item.asked and item.result == Stored(ok=False, body=error.body)
        case Parked(body, _):
            return not item.asked and orjson.loads(item.body) == body
    return True


def _counts(history: History, of: Pipeline, levels: Sequence[Level], rows: Sequence[tuple[Any, ...]]) -> None:
    """The counts that the stages show."""
    for level, (n, ran, passed, dropped, refused, total, ended, more, final) in zip(levels, rows, strict=True):
        told = ran, passed, dropped, refused
        made = level.ran, level.passed, level.dropped, level.refused
        if n and told != made:
            history.wrong("kill_wrong_lineage", f"{of.key} stage {n} counts {told}, made {made}")
        if total != len(level.items) or (n and ended != total) or more or not final:
            facts = f"total {total}, ended {ended}, more {more}, final {final}"
            history.wrong("kill_lost", f"{of.key} stage {n} of {len(level.items)}: {facts}")
