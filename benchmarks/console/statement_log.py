"""The statements in the log of the embedded PostgreSQL server, with their durations."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.db import embedded
from app.settings import Settings
from benchmarks.harness import Testbed

# The server logs parsing, binding (with planning) and executing one statement each in a line of its own.
_LINE = re.compile(r"^.* \[(\d+)\] LOG:  duration: ([\d.]+) ms  (parse|bind|execute|statement)\b[^:]*: ?(.*)$")
_BEGINS = re.compile(r"^\d{4}-\d\d-\d\d ")


@dataclass
class StatementLog:
    """A log that is read from a position on."""

    file: Path
    _position: int = 0

    @classmethod
    def of(cls, testbed: Testbed) -> "StatementLog | None":
        """The log of the testbed's server; None: the server is not the embedded one."""
        file = embedded.log_file(Settings(data_dir=testbed.folder / "server", database_url=""))
        return cls(file) if file.exists() else None

    @staticmethod
    def enable(database: str) -> bytes:
        """The statement that makes new connections to this database log all of theirs."""
        return f'alter database "{database}" set log_min_duration_statement = 0'.encode()

    def skip(self) -> None:
        """Leave out what the log has so far."""
        self._position = self.file.stat().st_size

    def read(self) -> list[tuple[float, str]]:
        """The statements since the position: milliseconds in the server, and the text."""
        with self.file.open("rb") as opened:
            opened.seek(self._position)
            text = opened.read()
        self._position += len(text)
        return list(statements(text.decode(errors="replace")))


def statements(text: str) -> Iterator[tuple[float, str]]:
    """Each statement of these lines with the time of parsing, binding and executing it."""
    spent: dict[str, float] = {}
    for record in _records(text):
        if found := _LINE.match(record):
            pid, milliseconds, step, statement = found.groups()
            spent[pid] = spent.get(pid, 0.0) + float(milliseconds)
            if step in ("execute", "statement"):
                yield round(spent.pop(pid), 3), statement.strip()


def _records(text: str) -> Iterator[str]:
    """The records of a log, each on one line; further lines of a record do not begin with a time."""
    record: list[str] = []
    for line in text.splitlines():
        if _BEGINS.match(line) and record:
            yield " ".join(record)
            record = []
        record.append(line)
    if record:
        yield " ".join(record)
