"""The output of `slackwater up`: the stages of its start, what goes wrong, and with `--verbose` the logs of its parts.

A terminal gets a bar for each stage and one row per event, in local time. A pipe gets a line for each stage and the log lines
unchanged.
"""

import asyncio
import threading
from collections import defaultdict
from math import inf
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from app import clock
from app.cli import log_lines
from app.cli.log_files import OURS, Tail
from app.quantities import duration
from app.telemetry import log_file, rotate

_POLL_SECONDS = 0.1
_QUIET_POLL_SECONDS = 1.0
_QUIET_SECONDS = 5.0  # without a new line, from which on the logs are looked at less often
_STALLED_SECONDS = 2.0
_HELD_SECONDS = 1.0  # a part may notice before the supervisor that the database has ended
_SETTLING_SECONDS = 60.0  # after the database is back, until everything is as before
_BAR_WIDTH = 20


def _follows_from_it(event: log_lines.LogLine) -> bool:
    """Whether a line comes of the database's end, as far as one can tell."""
    return event.level == "warning" or log_lines.names_connection(event)


class Screen:
    """Follows the logs of all parts and shows warnings and errors, or with `verbose` every line."""

    def __init__(self, data_dir: Path, console: Console, engine_name: str, *, verbose: bool = False) -> None:
        self.console = console
        self._verbose = verbose
        self.stages = StartStages(console)
        self._files = [log_file(data_dir, part) for part in (*OURS, engine_name)]
        self._tails = [Tail.from_end(log_file(data_dir, part)) for part in OURS]
        self._polling = threading.Lock()
        self._quiet_at = clock.monotonic() + _QUIET_SECONDS
        self._held: list[tuple[float, Path, str]] = []
        self._database_until = 0.0  # until then the parts may suffer from the end of the database
        self._tracebacks: defaultdict[Path, log_lines.Tracebacks] = defaultdict(log_lines.Tracebacks)

    async def run(self) -> None:
        """Show new lines and rotate the files, until cancelled. A terminal that blocks does not block the supervisor."""
        try:
            while True:
                if self._held or any(tail.grows for tail in self._tails):
                    self._quiet_at = clock.monotonic() + _QUIET_SECONDS
                    await asyncio.to_thread(self.poll)
                for file in self._files:
                    rotate(file)
                await asyncio.sleep(_POLL_SECONDS if clock.monotonic() < self._quiet_at else _QUIET_POLL_SECONDS)
        finally:
            self.poll(last=True)

    def poll(self, *, last: bool = False) -> None:
        """Show new lines, with `last` those that are held, too. Not if another thread has been doing so for longer than
        `_STALLED_SECONDS`.
        """
        if self._polling.acquire(timeout=_STALLED_SECONDS):
            try:
                for tail in self._tails:
                    for line in tail.read():
                        self._take(tail.file, line)
                due = clock.monotonic() - (0.0 if last else _HELD_SECONDS)
                for each in [each for each in self._held if each[0] <= due]:
                    self._held.remove(each)
                    self._show(*each[1:])
            finally:
                self._polling.release()

    def say(self, text: str) -> None:
        """Print a line of our own."""
        self.console.print(Text(text), soft_wrap=True)

    def _take(self, file: Path, line: str) -> None:
        """Show a line, or hold it, or leave it to the log: of the end of the database one line is enough."""
        event, now = log_lines.parse(line), clock.monotonic()
        if self._verbose or event is None:
            self._show(file, line)
        elif file == self._tails[0].file:
            if not self._told_of_database(event, now):
                self._show(file, line)
        elif event.for_developers or (now < self._database_until and _follows_from_it(event)):
            return
        elif not event.quiet and log_lines.names_connection(event):
            self._held.append((now, file, line))
        else:
            self._show(file, line)

    def _told_of_database(self, event: log_lines.LogLine, now: float) -> bool:
        """Whether the line of the supervisor is about its database, and has been said in words."""
        if not (said := log_lines.of_database(event)):
            return False
        down = event.text.startswith(log_lines.DATABASE_DOWN)
        if not (down and self._database_until == inf):
            self.say(said)
        self._held.clear()
        self._database_until = inf if down else now + _SETTLING_SECONDS
        return True

    def _show(self, file: Path, line: str) -> None:
        event = log_lines.parse(line)
        if not self._verbose and (event is None or event.quiet):
            if event is not None and (said := log_lines.draining(event)):
                self.say(said)
        elif not self.console.is_terminal:
            self.say(line)
        elif event is None:
            if line.strip() and not self._tracebacks[file].drops(line):
                self.say(line)
        elif not (event.quiet and self.stages.shown):
            self.console.print(log_lines.shown(event, self.console.width), soft_wrap=not event.quiet)


class StartStages:
    """The stages of a start, one at a time. `begin` ends the stage before."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._began = 0.0

    @property
    def shown(self) -> bool:
        """Whether the stages are shown on the terminal."""
        return self._progress is not None

    @property
    def seconds(self) -> float:
        """How long the current stage has taken so far."""
        return clock.monotonic() - self._began

    def open(self) -> None:
        """Start to show stages, if there is a terminal."""
        if self._console.is_terminal:
            name, note = TextColumn("{task.description:<9}"), TextColumn("{task.fields[note]}", markup=False)
            self._progress = Progress(_Mark(), name, note, _Bar(), _Time(), console=self._console)
            self._progress.start()

    def close(self) -> None:
        """Stop showing stages. Finished stages stay on the screen. May be called again."""
        if self._progress is not None:
            if self._name:
                self.end("not finished", failed=True)
            self._progress.stop()
        self._progress, self._task, self._name = None, None, ""

    def begin(self, name: str, note: str = "", *, usual: float | None = None, slow: bool = False) -> None:
        """Begin a stage. `usual`: how many seconds it took lately. `slow`: show a bar, or a line in a pipe."""
        self.end()
        self._name, self._began = name, clock.monotonic()
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=None, note=note, usual=usual, slow=slow, failed=False)
        elif slow:
            self._say(note + (f", lately {duration(usual)}" if usual else ""))

    def note(self, text: str) -> None:
        """Show what the current stage does now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, note=text)
        else:
            self._say(text)

    def end(self, note: str | None = None, *, failed: bool = False) -> None:
        """End the current stage, if there is one."""
        if not self._name:
            return
        more: dict[str, Any] = {} if note is None else {"note": note}
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=1, completed=1, slow=False, failed=failed, **more)
        else:
            self._say(", ".join([note or "done", *([] if failed else [duration(self.seconds)])]))
        self._name, self._task = "", None

    def _say(self, text: str) -> None:
        self._console.print(Text(f"{self._name:<9} {text}"), soft_wrap=True)


class _Mark(SpinnerColumn):
    """A spinner while a stage runs, then a mark for success or failure."""

    def render(self, task: Task) -> RenderableType:
        """One character."""
        if not task.finished:
            return super().render(task)
        return Text("✗", "yellow") if task.fields["failed"] else Text("✓", "green")


class _Bar(ProgressColumn):
    """The progress of a slow stage, estimated from its usual duration. Without one, a pulsing bar."""

    def render(self, task: Task) -> RenderableType:
        """The bar, or empty text for a stage that is not slow."""
        if not task.fields["slow"]:
            return Text("")
        if usual := task.fields["usual"]:
            return ProgressBar(total=usual, completed=min(task.elapsed or 0.0, usual * 0.99), width=_BAR_WIDTH)
        return ProgressBar(total=None, pulse=True, width=_BAR_WIDTH, animation_time=task.get_time())


class _Time(ProgressColumn):
    """The duration of a stage so far, and how long it took lately."""

    def render(self, task: Task) -> RenderableType:
        """For example `23 s, lately 47 s`."""
        elapsed = task.elapsed or 0.0
        if task.finished:
            return Text(duration(task.finished_time or elapsed), "dim")
        usual = task.fields["usual"]
        return Text(f"{elapsed:.0f} s" + (f", lately {duration(usual)}" if usual else ""), "dim")
