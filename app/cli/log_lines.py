"""Parses log lines, and formats them for a terminal. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from app.quantities import duration, many

_CONSOLE = re.compile(r"(?P<at>\d{4}-\d\d-\d\dT\S+Z) \[(?P<level>\w+)\s*\] (?P<part>\S+)\s+(?P<text>.*)")
_FACT = re.compile(r"\b(\w+)=('[^']*'|\S+)")
_STYLES = {"warning": "yellow", "error": "bold red", "critical": "bold red", "debug": "dim"}
DATABASE_DOWN, DATABASE_BACK = "database.down", "database.restarted"
_CONNECTION = re.compile(r"connect|database|server|broker", re.IGNORECASE)
_OURS = re.compile(r"[a-z_]+(\.[a-z_]+)+( |$)")  # the name of an event
_PROBLEM = "error "  # as app.user_errors prints it
_TRACEBACK = re.compile(r"\s*(\+ )?(Exception Group )?Traceback \(most recent call last\):")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One log event: time, level, part, and the rest of the line."""

    at: datetime
    level: str
    part: str
    text: str

    @property
    def quiet(self) -> bool:
        """Whether the level is below warning."""
        return self.level in ("info", "debug")

    @property
    def for_developers(self) -> bool:
        """Whether it is the warning of a library, on which nobody at a terminal can act."""
        return self.level == "warning" and not _OURS.match(self.text)


def parse(line: str) -> LogLine | None:
    """The event of a line in either log format; None for other lines, such as those of a traceback."""
    if line.startswith("{"):
        return _from_json(line)
    found = _CONSOLE.match(line)
    if found is None:
        return None
    return LogLine(datetime.fromisoformat(found["at"]), found["level"], found["part"], " ".join(found["text"].split()))


def _from_json(line: str) -> LogLine | None:
    try:
        event = json.loads(line)
        at, level, part = datetime.fromisoformat(event.pop("timestamp")), event.pop("level"), event.pop("part")
        text = " ".join([str(event.pop("event")), *(f"{name}={value}" for name, value in event.items())])
    except (ValueError, KeyError, TypeError):
        return None
    return LogLine(at, level, part, text)


def shown(line: LogLine, width: int) -> Text:
    """The event for a terminal, in local time. Only quiet events are cut to one row; those about a batch are not cut."""
    style = _STYLES.get(line.level, "")
    at = f"{line.at.astimezone():%H:%M:%S %Z} ", "dim"
    if line.quiet and (batch := _batch(line.text)):
        return Text.assemble(at, ("batch ", "cyan"), batch)
    text = Text.assemble(at, (f"{line.part:<12} ", "cyan"), (line.text, style))
    if line.quiet:
        text.truncate(width, overflow="ellipsis")
    return text


def _batch(text: str) -> str:
    """An event about a batch in a short form that keeps the whole id; empty for other events."""
    event, _, rest = text.partition(" ")
    facts = dict(_FACT.findall(rest))
    if not event.startswith("batch.") or "request_id" not in facts:
        return ""
    name, verb, pace = facts["request_id"], event.removeprefix("batch."), facts.get("items_per_second")
    speed = f", {pace} items/s" if pace else ""
    if verb == "progress":
        return f"{name} {facts.get('percent')} %{speed}"
    if verb == "started":
        return f"{name} started, items: {facts.get('items')}"
    failed = f", {facts['failed']} failed" if facts.get("failed", "0") != "0" else ""
    return f"{name} {verb}, {facts.get('ok')} ok{failed}{speed}"


def draining(line: LogLine) -> str:
    """What an ending worker waits for, in words; empty for other events and where it waits for nothing."""
    event, _, rest = line.text.partition(" ")
    facts = dict(_FACT.findall(rest))
    if event != "worker.draining" or not int(facts.get("in_flight", 0)):
        return ""
    patience = duration(float(facts.get("seconds", 0)))
    return f"{line.part.rpartition('/')[2]} finishes {many(int(facts['in_flight']), 'request')}, in at most {patience}."


def of_database(line: LogLine) -> str:
    """What the supervisor says of its database, in words: that it has ended, or is back; empty for other events."""
    event, _, rest = line.text.partition(" ")
    if event == DATABASE_DOWN:
        return "The database has ended; it is started again. What the parts say of that is in the logs only."
    if event == DATABASE_BACK:
        seconds = dict(_FACT.findall(rest)).get("seconds")
        return "The database is back" + (f", after {duration(float(seconds))}." if seconds else ".")
    return ""


def names_connection(line: LogLine) -> bool:
    """Whether the event is about a connection, as those are that follow from the end of a database."""
    return _CONNECTION.search(line.text) is not None


def last_error(lines: Sequence[str]) -> str:
    """What a part that ended by itself wrote of it: the problem of a Failure, or the last line of a traceback; empty: nothing."""
    said = [line for line in lines if line and not line[0].isspace() and parse(line) is None]
    problems = [line.removeprefix(_PROBLEM) for line in said if line.startswith(_PROBLEM)]
    return next(reversed(problems or said), "")


class Tracebacks:
    """Drops the tracebacks in one part's lines, except their last line, which names the exception."""

    def __init__(self) -> None:
        self._inside = False

    def drops(self, line: str) -> bool:
        """Whether to drop this line, which is not an event, as part of a traceback."""
        if _TRACEBACK.match(line):
            self._inside = True
        elif self._inside and line and not line[0].isspace():
            self._inside = False
        return self._inside
