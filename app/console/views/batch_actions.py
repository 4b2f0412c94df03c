"""What may be done to a batch, and what will happen then, in words. Pure."""

from dataclasses import dataclass, field

from app.access.roles import Viewer
from app.console.queries import BatchRow
from app.console.views import text
from app.states import BATCH, BatchState


@dataclass(frozen=True, slots=True)
class Action:
    """A button with its confirmation. `off`: why it cannot be pressed now. `key`: its shortcut. `cli`: the same as a command.
    `number`: the label of a field for a number, which may stay empty; `unit`: what stands behind it.
    """

    id: str
    name: str
    href: str
    title: str
    words: str
    confirm: str = ""
    cli: str = ""
    icon: str = ""
    off: str = ""
    key: str = ""
    danger: bool = False
    primary: bool = False
    reason: str = ""
    number: str = ""
    unit: str = ""
    fields: tuple[tuple[str, str], ...] = field(default_factory=tuple)


def of(row: BatchRow, counts: tuple[int, int], viewer: Viewer) -> list[Action]:
    """The actions on a batch, for somebody who may act. A stage is changed with its whole pipeline."""
    if not viewer.role.acts:
        return []
    ok, failed = counts
    left = row.total - ok - failed
    path, short = f"/console/batches/{row.request_id}", text.short(row.request_id)
    final = row.state in BATCH.final()
    if row.pipeline_id is not None:
        return [_download(path, short, ok, failed, final=final)] if viewer.role.reveals and not row.is_input else []
    found = [_pause(row, path, short, left)] if not final else []
    found.append(_retry(row, path, short, row.total - ok, final=final))
    if viewer.role.reveals:
        found.append(_download(path, short, ok, failed, final=final))
    if not final:
        found.append(_cancel(row, path, short, ok + failed, left))
    return found


def obstacle(verb: str, row: BatchRow) -> str:
    """Why pause, resume, cancel or retry cannot be done to a batch now; empty: it can."""
    if verb == "retry":
        if row.state not in BATCH.final():
            return "it has not ended"
        return "" if row.ok < row.total else "every item was answered"
    sources = {
        "pause": {BatchState.OPEN},
        "resume": {BatchState.PAUSED},
        "cancel": {BatchState.OPEN, BatchState.PAUSED},
    }
    return "" if row.state in sources[verb] else f"it is {row.state}"


def _pause(row: BatchRow, path: str, short: str, left: int) -> Action:
    if row.state == BatchState.PAUSED:
        words = f"{text.plural(left, 'item')} may run again, as soon as engines have room."
        return Action(
            "resume",
            "Resume",
            f"{path}/resume",
            f"Resume {row.name}?",
            words,
            cli=f"slackwater batch resume {short}",
            icon="play",
            key="p",
        )
    words = (
        f"No further item of its {left:,} starts. Items that an engine has now are taken back; those that are done keep their "
        "results. Its deadline stays."
    )
    return Action(
        "pause",
        "Pause",
        f"{path}/pause",
        f"Pause {row.name}?",
        words,
        cli=f"slackwater batch pause {short}",
        icon="pause",
        key="p",
        off=text.sentence(obstacle("pause", row)),
    )


def _retry(row: BatchRow, path: str, short: str, unanswered: int, *, final: bool) -> Action:
    name = f"Retry {unanswered:,} unanswered" if final and unanswered else "Retry failed"
    off = "" if final and unanswered else "Every item was answered" if final else "Once the batch has ended"
    words = (
        f"Run {row.run + 1} begins with {text.plural(unanswered, 'item')} without an answer: failed, cancelled or expired. "
        "What was answered is not computed again."
    )
    return Action(
        "retry",
        name,
        f"{path}/retry",
        f"Retry {text.plural(unanswered, 'item')} of {row.name}?",
        words,
        confirm="Retry",
        cli=f"slackwater batch retry {short}",
        icon="retry",
        off=off,
        fields=(("run", str(row.run)),),
    )


def _download(path: str, short: str, ok: int, failed: int, *, final: bool) -> Action:
    partly = "" if final else " The batch still runs: the file ends before its first item without a result."
    words = f"A file of {text.plural(ok, 'answer')} as JSON lines.{partly} The audit log keeps that you took it."
    return Action(
        "download",
        "Results",
        f"{path}/download",
        "Download the answers?",
        words,
        confirm="Download",
        icon="down",
        cli=f"slackwater results {short}",
        off="" if ok else "There is no answer yet",
    )


def _cancel(row: BatchRow, path: str, short: str, done: int, left: int) -> Action:
    words = (
        f"{text.plural(left, 'item')} will not run. {text.plural(done, 'result')} {'stays' if done == 1 else 'stay'}. "
        "The batch ends; a retry can run the rest later."
    )
    return Action(
        "cancel",
        "Cancel",
        f"{path}/cancel",
        f"Cancel {row.name}?",
        words,
        confirm=f"Cancel {text.plural(left, 'item')}",
        cli=f"slackwater batch cancel {short}",
        danger=True,
        off=text.sentence(obstacle("cancel", row)),
    )
