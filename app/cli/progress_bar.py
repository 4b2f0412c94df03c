"""Shows the progress of a batch, an upload or a download: a bar on a terminal, a line every few seconds in a pipe."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

from app import clock
from app.cli.client import Client
from app.cli.options import errors
from app.cli.text import plain
from app.quantities import duration

_FINAL = ("completed", "failed", "cancelled", "expired", "refused")
_PAUSES = (0.3, 2.0)  # seconds between two polls: in the first half minute, and later
_RATE_SECONDS = 30.0
_LINE_SECONDS = 10.0
_MESSAGES = 5


def watch(client: Client, request_id: str, console: Console = errors) -> dict[str, Any]:
    """Show a batch until it ends, then its outcome. Returns its overview. Interrupting this does not stop the batch.

    Raises Failure.
    """
    pace, began, found = ItemRate(), clock.monotonic(), {}
    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[forecast]}", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        expand=True,
        transient=True,
        disable=not console.is_terminal,
    )
    printed = -_LINE_SECONDS
    try:
        with bar:
            task = bar.add_task("queued", total=None, forecast="")
            while not final(found := client.get(f"/ai/batches/{request_id}")):
                done, total = counts(found)
                forecast = _forecast(found, pace.of(done, clock.monotonic()))
                bar.update(task, description=found["status"], completed=done, total=total, forecast=forecast)
                if not console.is_terminal and clock.monotonic() - printed >= _LINE_SECONDS:
                    printed = clock.monotonic()
                    console.print(f"{found['status']}  {done}/{total}  {forecast}".rstrip(), soft_wrap=True)
                time.sleep(_PAUSES[clock.monotonic() - began > _RATE_SECONDS])
    except KeyboardInterrupt:
        console.print(
            f"\nThe batch continues. `slackwater batch show {request_id} --watch` shows it again.", soft_wrap=True
        )
        raise
    for line in ending(found):
        console.print(plain(line), soft_wrap=True)
    return found


def final(overview: dict[str, Any]) -> bool:
    """Whether the batch has ended."""
    return overview["status"] in _FINAL


def counts(overview: dict[str, Any]) -> tuple[int, int]:
    """The number of items that have ended, and of all items."""
    progress = overview["progress"]
    return progress["succeeded"] + progress["failed"], progress["total"]


def exit_code(overview: dict[str, Any]) -> int:
    """0 if an item succeeded or the batch was cancelled, else 1."""
    return 0 if overview["progress"]["succeeded"] or overview["status"] == "cancelled" else 1


def ending(overview: dict[str, Any]) -> Iterator[str]:
    """Lines about a batch that has ended: counts, tokens, and its failures grouped by message."""
    progress, usage = overview["progress"], overview.get("usage") or {}
    yield (
        f"{overview['status']}: {progress['succeeded']:,} of {progress['total']:,} succeeded, {progress['failed']:,} failed; "
        f"{usage.get('prompt_tokens', 0):,} tokens in, {usage.get('completion_tokens', 0):,} out"
    )
    yield from failures(overview)


def failures(overview: dict[str, Any]) -> Iterator[str]:
    """Lines with the most frequent errors and their counts."""
    groups = overview.get("failures") or []
    for group in groups[:_MESSAGES]:
        yield f"  {group['count']:,} x {group['message']}"
    if len(groups) > _MESSAGES:
        yield f"  … and {len(groups) - _MESSAGES} more messages; `slackwater results {overview['request_id']} --failed` shows all"


class ItemRate:
    """Items per second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def of(self, done: int, now: float) -> float | None:
        """The rate when `done` items have ended by `now`; None until there is enough data."""
        self._seen.append((now, done))
        while now - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return (done - before) / (now - began) if now - began >= 1 and done > before else None


def _forecast(overview: dict[str, Any], pace: float | None) -> str:
    """The rate and the time left, or what the batch waits for."""
    estimate = overview.get("estimate") or {}
    parts = [] if pace is None else [f"{pace:.1f} items/s"]
    if (eta := estimate.get("eta_seconds")) is not None:
        parts.append(f"about {duration(eta)} left")
    if not parts and (waiting := overview.get("waiting")):
        parts.append(str(waiting["message"]))
    return ", ".join(parts)


@contextmanager
def uploading(blocks: Iterator[bytes], size: int | None) -> Iterator[Iterator[bytes]]:
    """The same blocks, with a progress bar of the bytes that were sent."""
    with _progress_bar(DownloadColumn()) as bar:
        task = bar.add_task("uploading", total=size)

        def counted() -> Iterator[bytes]:
            for block in blocks:
                yield block
                bar.update(task, advance=len(block))

        yield counted()


@contextmanager
def reading(total: int | None) -> Iterator[Any]:
    """A function to call once per result, and a progress bar that counts its calls."""
    with _progress_bar(MofNCompleteColumn()) as bar:
        task = bar.add_task("results", total=total)
        yield lambda: bar.update(task, advance=1)


def _progress_bar(column: Any) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        column,
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
