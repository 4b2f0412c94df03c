"""The stages of a pipeline as a flow from parent to child, and as a table with all counts. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.console.views import batch_state, pipeline_state, text
from app.console.views.batch_state import Standing
from app.console.views.plots import Meter, meter
from app.flows.stages import Again, BySize, ByValue, External, OfStage, Pick, Stage
from app.pipelines.outlook import PipelineOutlook, StageOutlook


@dataclass(frozen=True, slots=True)
class Box:
    """A stage in the flow, with the stages that it feeds. `kind`: what it does with an item, in words."""

    name: str
    href: str
    kind: str
    standing: Standing
    progress: str
    failed: str
    failed_bad: bool
    drawn: Meter
    children: Sequence["Box"] = ()


def tree(seen: PipelineOutlook) -> list[Box]:
    """The flow, which begins with the input."""
    boxes = {each.sight.row.n: _box(seen, each) for each in seen.stages}
    for stage in sorted(seen.sight.flow.stages, key=lambda each: -each.number):
        above = boxes[stage.parent]
        boxes[stage.parent] = replace(above, children=(boxes[stage.number], *above.children))
    return [boxes[0]]


def _box(seen: PipelineOutlook, of: StageOutlook) -> Box:
    row, status = of.sight.row, of.sight.status
    if not pipeline_state.runs(of.sight):
        words = f"{text.plural(status.total, 'line')}{', more come' if status.fed else ''}"
        drawn = meter(f"{row.name}: {words}", 1)
        return Box(row.name, _href(of), "lines", pipeline_state.of_stage(seen, of), words, "", False, drawn)
    done = status.ok + status.failed
    words = f"{done:,} of {status.total:,}{' so far' if status.fed else ''}" if status.total else "no item yet"
    if not status.total and status.finalized_at is not None:
        words = "no item"
    busy = status.claimed + status.in_engine
    drawn = meter(f"{row.name}: {words}", status.total, ("ok", status.ok), ("bad", status.failed), ("run", busy))
    return Box(
        row.name,
        _href(of),
        kind_of(seen, of),
        pipeline_state.of_stage(seen, of),
        words,
        f"{status.failed:,} failed" if status.failed else "",
        batch_state.many_failed(status.ok, status.failed),
        drawn,
    )


def _href(of: StageOutlook) -> str:
    return f"/console/batches/{of.sight.row.request_id}"


def kind_of(seen: PipelineOutlook, of: StageOutlook) -> str:
    """What a stage does with an item of its parent."""
    if of.sight.row.n == 0:
        return of.sight.status.model
    flow, status = seen.sight.flow, of.sight.status
    stage = flow.stage(of.sight.row.n)
    return "; ".join(filter(None, [_work(stage, status.model), _shape(stage, seen)]))


def _work(stage: Stage, model: str) -> str:
    work = stage.work
    if isinstance(work, External):
        return "asked outside"
    if isinstance(work, Pick):
        return "picks a choice"
    if isinstance(work, Again):
        most = f", at most {text.percent(stage.share)}{text.NBSP}%" if stage.share < 1 else ""
        return f"{'asks again' if work.with_answer else 'escalates'}: {model}{most}"
    return model


def _shape(stage: Stage, seen: PipelineOutlook) -> str:
    if stage.each is not None:
        return f"fans out, up to {stage.each.most:,}"
    if isinstance(stage.pack, BySize):
        return f"packs of {stage.pack.size:,}"
    if isinstance(stage.pack, OfStage):
        return f"a pack for each item of {seen.sight.stages[stage.pack.stage].row.name}"
    return "packs by value" if isinstance(stage.pack, ByValue) else ""


def rows(seen: PipelineOutlook) -> list[dict[str, Any]]:
    """The stages in their order with all counts, and why each waits."""
    return [_row(seen, each) for each in seen.stages]


def _row(seen: PipelineOutlook, of: StageOutlook) -> dict[str, Any]:
    row, status = of.sight.row, of.sight.status
    runs = pipeline_state.runs(of.sight)
    left = status.items.queued - row.parked if runs else 0
    busy = status.claimed + status.in_engine
    tokens = status.prompt_tokens + status.completion_tokens
    return {
        "name": row.name,
        "href": _href(of),
        "kind": kind_of(seen, of) if runs else "lines",
        "waiting": _number(left),
        "more": status.fed,
        "parked": f"{row.parked:,} outside" if row.parked else "",
        "running": _number(busy),
        "done": _number(status.ok if runs else status.total),
        "failed": _number(status.failed),
        "failed_bad": batch_state.many_failed(status.ok, status.failed),
        "passed": _number(row.passed),
        "dropped": _number(row.dropped),
        "tokens": text.compact(tokens) if tokens else "–",
        "cost": text.money(row.cost, row.currency) if row.cost and row.currency else "–",
        "standing": pipeline_state.of_stage(seen, of),
    }


def _number(number: int) -> str:
    return f"{number:,}" if number > 0 else "–"
