"""A pipeline and its stages in words: what each does or waits for, its end, its cost. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.console.views import signs, text, times
from app.console.views.batch_state import BATCH_FINAL, Standing
from app.flows.stages import INPUT
from app.pipelines.drafting import NANO
from app.pipelines.listing import Listed
from app.pipelines.outlook import PipelineOutlook, StageOutlook
from app.pipelines.reads import PipelineRow, Spent, StageSight
from app.pipelines.waiting import Pause
from app.sentences import ended

_MOST_NAMED = 3  # stages in a sentence


@dataclass(frozen=True, slots=True)
class Ending:
    """When a pipeline ends. `at`: None: not known. `due`: its deadline in words; `margin`: seconds that are left then."""

    at: datetime | None
    due: str
    margin: float | None

    @property
    def late(self) -> bool:
        """Whether it will miss its deadline at this pace."""
        return self.margin is not None and self.margin < 0


def name_of(row: PipelineRow) -> str:
    """What a person calls it, else the first digits of its id."""
    return text.inert(row.name, 200)[0] if row.name else text.short(row.request_id)


_PAUSED = {
    Pause.BUDGET: (signs.MONEY, "its budget is spent"),
    Pause.FAILING: (signs.LOOK, "many items fail"),
    Pause.ITEMS: (signs.LOOK, "too many items"),
    Pause.GROUPS: (signs.LOOK, "too many values of a pack"),
}


def paused(row: PipelineRow) -> Standing:
    """What holds a pipeline that is paused."""
    if row.paused_for is None:
        return Standing(signs.PAUSED, "Paused", "by somebody", "paused")
    sign, why = _PAUSED[Pause(row.paused_for)]
    return Standing(sign, "Paused", why, row.paused_for)


def listed(seen: Listed, now: datetime) -> Standing:
    """What a pipeline of a list does, by its folded counts."""
    row = seen.row
    if row.state in BATCH_FINAL:
        sign, words = signs.final(row.state)
        return Standing(sign, words, _after(row, now), str(row.state))
    if row.state == "paused":
        return paused(row)
    if row.state != "open":
        sign, words, _ = signs.waiting(str(row.state))
        return Standing(sign, words, "", str(row.state))
    if row.source_id is not None:
        return Standing(signs.WAITS, "Waits for its input", "the batch that is its input has not ended", "dependency")
    at_work = [step.name for step in seen.steps if step.runs and step.total > step.ok + step.failed]
    if not at_work:
        return Standing(signs.WAITS, "Between stages", "results are handed on", "dependency")
    return Standing(signs.RUNS, "Runs", few(at_work), "running")


def few(names: Sequence[str]) -> str:
    """Some names, as a sentence has them."""
    shown = ", ".join(names[:_MOST_NAMED])
    return shown + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")


def _after(row: PipelineRow, now: datetime) -> str:
    if row.finalized_at is None:
        return ""
    ago = times.span((now - row.finalized_at).total_seconds())
    return f"{ago} ago, after {times.span((row.finalized_at - row.opened_at).total_seconds())}"


def runs(stage: StageSight) -> bool:
    """Whether the items of a stage are more than the lines of an input that never runs."""
    return stage.row.n != INPUT or bool(stage.status.endpoint)


def of_stage(seen: PipelineOutlook, stage: StageOutlook) -> Standing:
    """What a stage does, or waits for."""
    status, link = stage.sight.status, stage.waiting
    if not runs(stage.sight):
        if status.fed:
            return Standing(signs.WAITS, "Waits for its batch", "", "dependency")
        return Standing(signs.ENDED, "Stored", "", "completed")
    if status.finalized_at is not None:
        sign, words = signs.final(status.state)
        return Standing(sign, words, "", str(status.state))
    if seen.waiting is not None:
        return Standing(signs.PAUSED, "Paused", "with its pipeline", "paused")
    if link is not None:
        sign, words, _ = signs.waiting(link.code)
        return Standing(sign, words, link.message, link.code)
    told = next((each.message for each in stage.why.chain if each.code in {"running", "settling"}), "")
    return Standing(signs.RUNS, "Runs", told, "running")


def ending(seen: PipelineOutlook, now: datetime) -> Ending:
    """When a pipeline that is not final ends."""
    row = seen.sight.row
    due = f"due {times.clock_time(row.expires_at, now)}" if row.expires_at else "no deadline"
    if seen.seconds is None:
        return Ending(None, due, None)
    at = now + timedelta(seconds=seen.seconds)
    return Ending(at, due, (row.expires_at - at).total_seconds() if row.expires_at else None)


def lede(seen: PipelineOutlook, now: datetime) -> tuple[str, str]:
    """Does it run, when will it be done, and what is wrong? The first sentence is the strong one."""
    row, ran = seen.sight.row, [each for each in seen.stages if runs(each.sight)]
    failed = sum(each.sight.status.failed for each in ran)
    wrong = (
        f" {text.sentence(text.plural(failed, 'item'))} {'has' if failed == 1 else 'have'} failed." if failed else ""
    )
    if row.finalized_at is not None:
        took = times.span((row.finalized_at - row.opened_at).total_seconds())
        answers = sum(each.sight.status.ok for each in ran)
        return (
            f"{signs.final(row.state)[1]} after {took}.",
            f"{text.plural(answers, 'result')} in {_stages(ran)}.{wrong}",
        )
    if seen.waiting is not None:
        return (
            f"Paused: {paused(row).sub}." if row.paused_for else "Paused.",
            f"{text.sentence(ended(seen.waiting.message))}{wrong}",
        )
    if row.state != "open":
        return f"{signs.waiting(str(row.state))[1]}.", wrong.strip()
    at_work = [each for each in ran if each.sight.status.finalized_at is None and each.waiting is None]
    strong = "Runs" if at_work else "Waits"
    end = ending(seen, now)
    if end.at is not None:
        against = ""
        if end.margin is not None:
            against = f", {times.span(abs(end.margin))} {'after' if end.late else 'before'} its deadline"
        strong += f"; done at about {times.clock_time(end.at, now)}{against}"
    return f"{strong}.", f"{_held(ran)}{wrong}".strip()


def _stages(ran: Sequence[StageOutlook]) -> str:
    return text.plural(len(ran), "stage")


def _held(ran: Sequence[StageOutlook]) -> str:
    """What the first stages that have work and wait, wait for; if none has, the first one that waits."""
    waits = [each for each in ran if each.sight.status.finalized_at is None and each.waiting is not None]
    held = [each for each in waits if each.sight.outlook is not None and each.sight.outlook.chunks] or waits[:1]
    return " ".join(ended(f"Stage {each.sight.row.name}: {each.waiting.message}") for each in held[:2] if each.waiting)


def budget(row: PipelineRow, spent: Spent | None) -> tuple[float | None, str]:
    """The budget of a pipeline and its currency. None: it has none."""
    return None if row.budget is None else row.budget / NANO, spent.currency if spent else "USD"
