"""The control page: one memory-mapped file between the worker and the scheduler in one engine-core process.

    worker -> scheduler   Commands: mode, limits, heartbeat
    scheduler -> worker   Report: the last step              Weights: what this engine has learned

The scheduler creates the page. It begins with a header: magic, layout, rank, engine, and the length of the room of each record.
A record says how many fields were written, and ends with a checksum. It has one writer. A reader that finds a half-written record
reads again. A read costs microseconds and one system call (`fstat`), so both sides read at every step. Times are CLOCK_MONOTONIC,
which all processes of a machine share, those in other containers too.

The two sides may be of different versions. Fields are only ever appended: a reader takes those that it knows, and uses the
default for each one that an older writer has not written. A page that is more than two
layouts older or newer is refused, and so is a record that is more than two layouts old.
"""

import mmap
import zlib
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import Generic, NamedTuple, TypeVar, cast, get_type_hints

from .step_plan import PlanLimits

MAGIC = b"SLACKWTR"
LAYOUT = 4  # must grow when fields are appended to a record
FIRST_LAYOUT = 3  # the first one that begins with MAGIC
KEPT_LAYOUTS = 2  # writer and reader may be so many layouts apart
SILENT_SECONDS = 2.0  # a worker that has not written for this long counts as dead
ENGINE_BYTES = 8
_TRIES = 100
_HEADER = Struct(f"<8sHH{ENGINE_BYTES}sHHH")  # magic, layout, rank, engine, rooms of commands, report and weights
_HEADER_ROOM = 64
_ROOMS = (1024, 2048, 256)
_HEAD = Struct("<HH")  # of a record: layout of its writer, number of fields
_CHECK = 4


class PageError(Exception):
    """The page cannot be used. `code`: one of those below."""

    def __init__(self, code: str, path: Path) -> None:
        super().__init__(f"{code}: {path}")
        self.code = code


UNKNOWN = "page_unknown"  # not a control page, or damaged
TOO_OLD = "page_too_old"
TOO_NEW = "page_too_new"  # its scheduler would refuse our commands


@dataclass(frozen=True, slots=True)
class Commands(PlanLimits):
    """What the worker commands. `heartbeat`: monotonic second of the write. `harvest` off: vLLM schedules alone."""

    heartbeat: float = 0.0
    harvest: bool = True


class Weights(NamedTuple):
    """The argument of `StepModel.of`. All zero: nothing is known."""

    base: float = 0.0
    below: float = 0.0
    per_context: float = 0.0
    bend: float = 0.0
    knee: float = 0.0


@dataclass(slots=True)
class Report:
    """The state of the scheduler after a step. Counters start with the engine.

    `at`: when the step was scheduled. `supported`: this version of vLLM was tested. `tripped`: after a fault, the scheduler
    runs no batch work until the engine restarts. `silent`: it runs none because the worker's heartbeat is missing.
    `trusted`: the model's error is within its limit. `step_seconds` and `predicted_seconds` are of the last finished step,
    `plan_seconds` of the last plan. `allowed_seconds`: the step budget of the last step. `planning`: the last step was shared
    by a plan; otherwise vLLM scheduled it alone, or batch work was shed. `slots`: most requests that it runs at once; 0: it does
    not say.
    """

    at: float = 0.0
    steps: int = 0
    supported: bool = True
    tripped: bool = False
    silent: bool = False
    trusted: bool = False
    sync_running: int = 0
    sync_waiting: int = 0
    batch_running: int = 0
    batch_frozen: int = 0
    batch_waiting: int = 0
    evictions: int = 0
    freezes: int = 0
    faults: int = 0
    sync_tokens: int = 0
    batch_tokens: int = 0
    step_seconds: float = 0.0
    predicted_seconds: float = 0.0
    allowed_seconds: float = 0.0
    plan_seconds: float = 0.0
    kv_usage: float = 0.0
    model_error: float = 1.0
    model_samples: int = 0
    planning: bool = False
    slots: int = 0


# The order of the fields on the page. Append only, and add 1 to LAYOUT.
FIELDS: dict[type, tuple[str, ...]] = {
    Commands: (
        *("itl_budget", "itl_stretch", "itl_ceiling", "idle_step", "idle_stretch", "tolerance"),
        *("urgency", "chunk", "kv_reserve", "error", "heartbeat", "harvest"),
    ),
    Report: (
        *("at", "steps", "supported", "tripped", "silent", "trusted"),
        *("sync_running", "sync_waiting", "batch_running", "batch_frozen", "batch_waiting"),
        *("evictions", "freezes", "faults", "sync_tokens", "batch_tokens"),
        *("step_seconds", "predicted_seconds", "allowed_seconds", "plan_seconds"),
        *("kv_usage", "model_error", "model_samples", "planning", "slots"),
    ),
    Weights: Weights._fields,
}

T = TypeVar("T")


def readable(layout: int) -> bool:
    """Whether this code can read what code of that layout has written. Newer layouts only append."""
    return layout >= max(FIRST_LAYOUT, LAYOUT - KEPT_LAYOUTS)


class _Record(Generic[T]):
    """One record of the page: layout and number of fields, the fields as doubles, a checksum.

    `outdated`: the last one that was read has a layout that is too old.
    """

    def __init__(self, kind: type[T], page: mmap.mmap, offset: int, room: int) -> None:
        names = FIELDS[kind]
        types = get_type_hints(kind)
        self.outdated = False
        self._raw, self._last = b"", cast(T | None, None)  # the last record that was whole, and what it says
        self._kind, self._page, self._room = kind, page, slice(offset, offset + room)
        self._casts = [(name, types[name]) for name in names]
        self._values = attrgetter(*names)
        self._count = min(len(names), (room - _HEAD.size - _CHECK) // 8)  # a page of an older layout may have less room
        self._struct = Struct(f"<HH{self._count}d")
        self._whole = slice(offset, offset + self._struct.size + _CHECK)

    def write(self, record: T) -> None:
        body = self._struct.pack(LAYOUT, self._count, *self._values(record)[: self._count])
        self._page[self._whole] = body + zlib.crc32(body).to_bytes(_CHECK, "little")

    def read(self) -> T | None:
        """The record; None if there is none that is whole and that this code can read."""
        for _ in range(_TRIES):
            raw = self._page[self._room]
            if raw == self._raw:  # commands change ten times a second, steps are taken more often
                return self._last
            layout, count = _HEAD.unpack_from(raw)
            if not layout:
                return None  # nothing was written yet
            end = _HEAD.size + 8 * count
            if zlib.crc32(raw[:end]).to_bytes(_CHECK, "little") == raw[end : end + _CHECK]:
                self.outdated = not readable(layout)
                self._raw, self._last = raw, None if self.outdated else self._made(raw, count)
                return self._last
        return None

    def _made(self, raw: bytes, count: int) -> T | None:
        values = Struct(f"<{min(count, len(self._casts))}d").unpack_from(raw, _HEAD.size)
        try:
            return self._kind(**{name: kind(value) for (name, kind), value in zip(self._casts, values, strict=False)})
        except (TypeError, ValueError, OverflowError):  # no such record: too few fields, or a NaN where a number counts
            return None


class ControlPage:
    """The mapped page. `rank`: data-parallel rank. `engine`: what all ranks of one engine share. Raises OSError, PageError."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            try:
                self._map = mmap.mmap(file.fileno(), 0)
            except ValueError as error:  # an empty file
                raise PageError(UNKNOWN, path) from error
        try:
            self.rank, self.engine, rooms = _header(self._map, path)
        except PageError:
            self._map.close()
            raise
        down, up, learnt = rooms
        self._length = _HEADER_ROOM + sum(rooms)
        self._commands = _Record(Commands, self._map, _HEADER_ROOM, down)
        self._report = _Record(Report, self._map, _HEADER_ROOM + down, up)
        self._learnt = _Record(Weights, self._map, _HEADER_ROOM + down + up, learnt)

    @property
    def whole(self) -> bool:
        """Whether the file still has its length. If not, touching the mapping could end the process with SIGBUS."""
        return self._map.size() >= self._length

    def commands(self) -> Commands | None:
        """The last commands of the worker; None before the first ones, and if the file was cut."""
        return self._commands.read() if self.whole else None

    @property
    def worker_too_old(self) -> bool:
        """Whether the commands that were read last have a layout that is too old."""
        return self._commands.outdated

    def command(self, commands: Commands) -> None:
        """Write the commands with a heartbeat of this moment. A file that was cut is left alone."""
        if self.whole:
            self._commands.write(replace(commands, heartbeat=monotonic()))

    def report(self) -> Report | None:
        """The scheduler's last report; None before the first one, and if the file was cut."""
        return self._report.read() if self.whole else None

    def learnt(self) -> Weights | None:
        """The step model's weights."""
        return self._learnt.read() if self.whole else None

    def publish(self, report: Report, learnt: Weights) -> None:
        """Publish the state of the scheduler. A file that was cut is left alone."""
        if self.whole:
            self._report.write(report)
            self._learnt.write(learnt)

    @property
    def closed(self) -> bool:
        """Whether it is unmapped."""
        return self._map.closed

    def close(self) -> None:
        """Unmap the page; the file stays."""
        self._map.close()


def blank(rank: int, engine: bytes) -> bytes:
    """The content of a new page. It is written in full, so that memory that is short is noticed here and not at a step."""
    header = _HEADER.pack(MAGIC, LAYOUT, rank, engine, *_ROOMS)
    header += zlib.crc32(header).to_bytes(_CHECK, "little")
    return header.ljust(_HEADER_ROOM + sum(_ROOMS), b"\0")


def _header(page: mmap.mmap, path: Path) -> tuple[int, bytes, tuple[int, int, int]]:
    whole = page[: _HEADER.size + _CHECK]
    if len(whole) < _HEADER.size + _CHECK or not whole.startswith(MAGIC):
        raise PageError(UNKNOWN, path)
    _, layout, rank, engine, *rooms = _HEADER.unpack_from(whole)
    down, up, learnt = rooms
    if not readable(layout):
        raise PageError(TOO_OLD, path)
    if layout > LAYOUT + KEPT_LAYOUTS:
        raise PageError(TOO_NEW, path)
    sound = zlib.crc32(whole[:-_CHECK]).to_bytes(_CHECK, "little") == whole[-_CHECK:]
    if not sound or len(page) < _HEADER_ROOM + sum(rooms) or min(rooms) < _HEAD.size + _CHECK:
        raise PageError(UNKNOWN, path)
    return rank, engine, (down, up, learnt)
