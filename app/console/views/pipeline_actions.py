"""What may be done to a pipeline, and what will happen then, in words. Pure."""

from app.access.roles import Viewer
from app.console.views import pipeline_state, text
from app.console.views.batch_actions import Action
from app.console.views.pipeline_filter import PATH
from app.pipelines.outlook import PipelineOutlook
from app.pipelines.waiting import Pause
from app.states import BATCH, BatchState


def of(seen: PipelineOutlook, viewer: Viewer) -> list[Action]:
    """The actions on a pipeline, for somebody who may act."""
    if not viewer.role.acts:
        return []
    row = seen.sight.row
    if row.state in BATCH.final():
        return [_retry(seen)]
    first = _resume(seen) if row.state == BatchState.PAUSED else _pause(seen)
    return [first, _cancel(seen)]


def _action(seen: PipelineOutlook, verb: str, words: str, **more: object) -> Action:
    row = seen.sight.row
    name = text.sentence(verb)
    title = f"{name} {pipeline_state.name_of(row)}?"
    cli = f"slackwater pipeline {verb} {row.public_id}"
    return Action(verb, name, f"{PATH}/{row.public_id}/{verb}", title, words, cli=cli, **more)  # type: ignore[arg-type]


def _left(seen: PipelineOutlook) -> int:
    """The items that exist and have no result."""
    statuses = [each.sight.status for each in seen.stages if pipeline_state.runs(each.sight)]
    return sum(each.total - each.ok - each.failed for each in statuses)


def _open(seen: PipelineOutlook) -> int:
    """How many stages have not ended."""
    return sum(each.sight.status.finalized_at is None for each in seen.stages)


def _stages(seen: PipelineOutlook) -> str:
    return text.plural(_open(seen), "stage")


def _pause(seen: PipelineOutlook) -> Action:
    words = (
        f"What has not ended pauses, {_stages(seen)}: none of {text.plural(_left(seen), 'item')} starts, and no result is "
        "handed on. Items that an engine has now are taken back; what is done stays. Its deadline stays."
    )
    off = "" if seen.sight.row.state == BatchState.OPEN else f"It is {seen.sight.row.state}"
    return _action(seen, "pause", words, icon="pause", key="p", off=off)


def _resume(seen: PipelineOutlook) -> Action:
    row = seen.sight.row
    words = f"{text.plural(_left(seen), 'item')} may run again as engines have room, and results are handed on."
    if row.paused_for == Pause.BUDGET:
        limit, currency = pipeline_state.budget(row, seen.sight.spent)
        words += f" It has used its budget of {text.money(limit, currency)}: with the same one it pauses again at once."
        return _action(seen, "resume", words, icon="play", key="p", number="New budget", unit=currency)
    if row.paused_for is not None:
        words += " It does not pause again for failures, or for many items or packs."
    return _action(seen, "resume", words, icon="play", key="p")


def _cancel(seen: PipelineOutlook) -> Action:
    left = _left(seen)
    words = (
        f"{_stages(seen)} {'ends' if _open(seen) == 1 else 'end'}: {text.plural(left, 'item')} will not run, and no "
        "more are made. All results that exist stay. A retry can run the rest later."
    )
    off = "" if seen.sight.row.state in {BatchState.OPEN, BatchState.PAUSED} else f"It is {seen.sight.row.state}"
    return _action(seen, "cancel", words, icon="", danger=True, off=off, confirm=f"Cancel {text.plural(left, 'item')}")


def _retry(seen: PipelineOutlook) -> Action:
    unanswered = sum(
        each.sight.status.total - each.sight.status.ok for each in seen.stages if pipeline_state.runs(each.sight)
    )
    words = (
        f"Run {seen.sight.row.run + 1} begins with {text.plural(unanswered, 'item')} without an answer. What comes of them "
        "follows, stage by stage. What was answered is not computed again, and packs that were made stay as they are."
    )
    off = "" if unanswered else "Every item was answered"
    return _action(seen, "retry", words, icon="retry", off=off, fields=(("run", str(seen.sight.row.run)),))
