"""The log files of an installation: list them, read their last lines, follow them."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from app.cli import log_lines
from app.telemetry import old_log
from app.user_errors import Failure

OURS = (
    "up",
    "api",
    "steward",
    "maintenance",
    "notifier",
    "gpu-worker",
    "console",
)  # an engine's own log is shown only on request
_POLL_SECONDS = 0.2
_END_BYTES = 8192
_EPOCH = datetime.fromtimestamp(0, UTC)


class Tail:
    """Reads the lines that are appended to one file. The file may not exist yet and may be rotated at any time."""

    def __init__(self, file: Path, offset: int = 0) -> None:
        self.file = file
        self._offset = offset
        self._rest = b""
        self._old = _identity(old_log(file))

    @classmethod
    def from_end(cls, file: Path) -> "Tail":
        """A tail that starts at the end of the file."""
        return cls(file, file.stat().st_size if file.exists() else 0)

    @property
    def grows(self) -> bool:
        """Whether there is something to read."""
        try:
            size = self.file.stat().st_size
        except FileNotFoundError:
            size = 0
        return size != self._offset or _identity(old_log(self.file)) != self._old

    def read(self) -> list[str]:
        """The complete lines that were appended since the last call."""
        found = self._rest
        old = _identity(old_log(self.file))
        if old != self._old:  # the file was rotated: the unread rest is at the end of the old file
            found += _from(old_log(self.file), self._offset)
            self._old, self._offset = old, 0
        new = _from(self.file, self._offset)
        self._offset += len(new)
        *lines, self._rest = (found + new).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _from(file: Path, offset: int) -> bytes:
    try:
        with file.open("rb") as content:
            content.seek(offset)
            return content.read()
    except FileNotFoundError:
        return b""


def last_error(file: Path) -> str:
    """The error that a part wrote last, in one line; empty if the end of its log has none, or cannot be read."""
    try:
        end = _from(file, max(0, file.stat().st_size - _END_BYTES))
    except OSError:
        return ""
    return log_lines.last_error(end.decode(errors="replace").splitlines())


def parts(data_dir: Path) -> list[str]:
    """The parts that have a log file."""
    return sorted(file.stem for file in (data_dir / "logs").glob("*.log"))


def chosen(data_dir: Path, part: str | None) -> list[Path]:
    """The log files of one part, or of all. Raises Failure."""
    known = parts(data_dir)
    if part is not None and part not in known:
        remedy = f"There are logs of {', '.join(known)}." if known else "`slackwater up` writes them."
        raise Failure(f"There is no log of {part} in {data_dir / 'logs'}.", remedy)
    if not known:
        raise Failure(f"There are no logs in {data_dir / 'logs'}.", "`slackwater up` writes them.")
    return [data_dir / "logs" / f"{name}.log" for name in known if part in (None, name)]


def latest(files: Sequence[Path], count: int) -> list[str]:
    """The last `count` lines of all files, ordered by time. A line without a time stays behind the line before it."""
    merged = heapq.merge(*(_last(file, count) for file in files), key=lambda line: line[0])
    return [line for _, line in deque(merged, maxlen=count)]


def _last(file: Path, count: int) -> Iterable[tuple[datetime, str]]:
    lines, at = deque[tuple[datetime, str]](maxlen=count), _EPOCH
    for each in (old_log(file), file):
        if each.exists():
            with each.open(errors="replace") as content:
                for line in content:
                    event = log_lines.parse(line.rstrip("\n"))
                    at = event.at if event else at
                    lines.append((at, line.rstrip("\n")))
    return lines


def follow(tails: Sequence[Tail], show: Callable[[str], None], pause: Callable[[float], None] = time.sleep) -> None:
    """Show appended lines until interrupted."""
    while True:
        for line in (line for tail in tails for line in tail.read()):
            show(line)
        pause(_POLL_SECONDS)
