"""What `slackwater up` shows: the stages of its start, and what its parts log.

A terminal gets a bar for each stage and one row per event, by local time; a pipe gets the lines of the logs as they are.
"""

import asyncio
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from app import clock
from app.cli import log_lines
from app.cli.log_files import OURS, Tail
from app.headroom.reason_messages import duration
from app.telemetry import log_file, rotate

_LOOK_SECONDS = 0.1
_STALLED_SECONDS = 2.0
_BAR_WIDTH = 20
log = structlog.get_logger("start")


class Screen:
    """Follows the logs of all parts from now on; `stages` are shown above them, while there are any."""

    def __init__(self, data_dir: Path, console: Console, engine_name: str) -> None:
        self.console = console
        self.stages = StartStages(console)
        self._files = [log_file(data_dir, part) for part in (*OURS, engine_name)]
        self._tails = [Tail.from_end(log_file(data_dir, part)) for part in OURS]
        self._looking = threading.Lock()
        self._tracebacks: defaultdict[Path, log_lines.Tracebacks] = defaultdict(log_lines.Tracebacks)

    async def run(self) -> None:
        """Show what comes, and keep the files bounded, until cancelled. A terminal that is stopped stops nothing else."""
        try:
            while True:
                await asyncio.to_thread(self.look)
                for file in self._files:
                    rotate(file)
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self.look()

    def look(self) -> None:
        """Show what is new, unless somebody else is just doing so and does not come to an end."""
        if self._looking.acquire(timeout=_STALLED_SECONDS):
            try:
                for tail in self._tails:
                    for line in tail.read():
                        self._show(tail.file, line)
            finally:
                self._looking.release()

    def _show(self, file: Path, line: str) -> None:
        if not self.console.is_terminal:
            self.console.print(Text(line), soft_wrap=True)
        elif (event := log_lines.parse(line)) is None:
            if line.strip() and not self._tracebacks[file].drops(line):
                self.console.print(Text(line), soft_wrap=True)
        elif not (event.quiet and self.stages.shown):
            self.console.print(log_lines.shown(event, self.console.width), soft_wrap=not event.quiet)


class StartStages:
    """The stages of a start, one at a time. `begin` ends the one before."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._name = ""
        self._began = 0.0

    @property
    def shown(self) -> bool:
        """Whether stages are on the screen."""
        return self._progress is not None

    @property
    def seconds(self) -> float:
        """How long the current stage has taken."""
        return clock.monotonic() - self._began

    def open(self) -> None:
        """Show stages from now on, where there is a terminal."""
        if self._console.is_terminal:
            name, note = TextColumn("{task.description:<9}"), TextColumn("{task.fields[note]}", markup=False)
            self._progress = Progress(_Mark(), name, note, _Bar(), _Time(), console=self._console)
            self._progress.start()

    def close(self) -> None:
        """Show no more of them; those that are through stay on the screen. Safe to repeat."""
        if self._progress is not None:
            if self._name:
                self.end("not finished", failed=True)
            self._progress.stop()
        self._progress, self._task, self._name = None, None, ""

    def begin(self, name: str, note: str = "", *, usual: float | None = None, slow: bool = False) -> None:
        """A stage begins, which usually takes so many seconds. `slow`: it is worth a bar, and a line in a pipe."""
        self.end()
        self._name, self._began = name, clock.monotonic()
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=None, note=note, usual=usual, slow=slow, failed=False)
        elif slow:
            known = {"usual_seconds": round(usual)} if usual else {}
            log.info("starting", stage=name, note=note, **known)

    def note(self, text: str) -> None:
        """What the current stage does now."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, note=text)
        else:
            log.info("starting", stage=self._name, note=text)

    def end(self, note: str | None = None, *, failed: bool = False) -> None:
        """The current stage, if there is one, is over."""
        if not self._name:
            return
        more: dict[str, Any] = {} if note is None else {"note": note}
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=1, completed=1, slow=False, failed=failed, **more)
        else:
            event = "not started" if failed else "started"
            log.info(event, stage=self._name, seconds=round(self.seconds, 1), **more)
        self._name, self._task = "", None


class _Mark(SpinnerColumn):
    """Turns while a stage goes on; then whether it came to a good end."""

    def render(self, task: Task) -> RenderableType:
        """One character."""
        if not task.finished:
            return super().render(task)
        return Text("✗", "yellow") if task.fields["failed"] else Text("✓", "green")


class _Bar(ProgressColumn):
    """How far a slow stage should be by the time that it usually takes; without that, only that it goes on."""

    def render(self, task: Task) -> RenderableType:
        """The bar, or nothing."""
        if not task.fields["slow"]:
            return Text("")
        if usual := task.fields["usual"]:
            return ProgressBar(total=usual, completed=min(task.elapsed or 0.0, usual * 0.99), width=_BAR_WIDTH)
        return ProgressBar(total=None, pulse=True, width=_BAR_WIDTH, animation_time=task.get_time())


class _Time(ProgressColumn):
    """How long a stage took, or has taken so far, and what is usual."""

    def render(self, task: Task) -> RenderableType:
        """Such as `23 s, usually 47 s`."""
        elapsed = task.elapsed or 0.0
        if task.finished:
            return Text(duration(task.finished_time or elapsed), "dim")
        usual = task.fields["usual"]
        return Text(f"{elapsed:.0f} s" + (f", usually {duration(usual)}" if usual else ""), "dim")
