"""The control page: one memory-mapped file between the worker and the scheduler in one engine-core process.

    worker -> scheduler   Commands: mode, limits, heartbeat        Weights: what an earlier engine learned
    scheduler -> worker   Report: the last step                    Weights: what this engine has learned

Each of the four records has one writer and a checksum. A reader that finds a half-written record reads again. A read costs
microseconds and no system call, so both sides read at every step. Times are CLOCK_MONOTONIC, which all processes of a machine
share. The checksums begin with the version of the layout, so a record of another version is never read.
"""

import mmap
import os
import zlib
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Generic, NamedTuple, TypeVar, get_type_hints

from app import clock
from workers.engine.step_plan import PlanLimits

LAYOUT = 2  # version; must change with the fields of any record
VARIABLE = "HARVEST_PAGE"  # environment variable of the engine: the path of its pages without the rank
SILENT_SECONDS = 2.0  # a worker that has not written for this long counts as dead
SIZE = 1024
_TRIES = 100
_DOWN, _PRIOR, _UP, _LEARNT = 0, 256, 384, 896


@dataclass(frozen=True, slots=True)
class Commands(PlanLimits):
    """What the worker commands. `heartbeat`: monotonic second of the write. `harvest` off: vLLM schedules alone."""

    heartbeat: float = 0.0
    harvest: bool = True


UNCOMMANDED = Commands(itl_budget=0, itl_stretch=0, itl_ceiling=0, idle_step=0, idle_stretch=0, tolerance=0)


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
    `plan_seconds` of the last plan. `allowed_seconds`: the step budget of the last step.
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


T = TypeVar("T")


class _Record(Generic[T]):
    """One record of the page: its fields as doubles, then a checksum. `read` returns None where there is no record."""

    def __init__(self, kind: type[T], page: mmap.mmap, offset: int) -> None:
        types = get_type_hints(kind)
        self._kind, self._page = kind, page
        self._casts = list(types.values())
        self._values = attrgetter(*types)
        self._struct = Struct(f"<{len(types)}d")
        self._body = slice(offset, offset + self._struct.size)
        self._whole = slice(offset, offset + self._struct.size + 4)

    def write(self, record: T) -> None:
        body = self._struct.pack(*self._values(record))
        self._page[self._whole] = body + zlib.crc32(body, LAYOUT).to_bytes(4, "little")

    def clear(self) -> None:
        self._page[self._whole] = bytes(self._struct.size + 4)

    def read(self) -> T | None:
        for _ in range(_TRIES):
            whole = self._page[self._whole]
            body = whole[:-4]
            if zlib.crc32(body, LAYOUT).to_bytes(4, "little") == whole[-4:]:
                values = self._struct.unpack(body)
                return self._kind(*(cast(value) for cast, value in zip(self._casts, values, strict=True)))
        return None


class _Page:
    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), SIZE)
        self._commands = _Record(Commands, self._map, _DOWN)
        self._prior = _Record(Weights, self._map, _PRIOR)
        self._report = _Record(Report, self._map, _UP)
        self._learnt = _Record(Weights, self._map, _LEARNT)

    def close(self) -> None:
        """Unmap the page; the file stays."""
        self._map.close()


def path_of(prefix: str | Path, rank: int = 0) -> Path:
    """The file of one engine-core process; `rank` is its data-parallel rank."""
    return Path(f"{prefix}.{rank}")


class PageOwner(_Page):
    """The worker's side. It creates the file, so it must come before the engine's start. `close` removes the file.

    Raises FileExistsError if the page belongs to another worker.
    """

    def __init__(self, prefix: str | Path, rank: int = 0) -> None:
        self.path = path_of(prefix, rank)
        with self.path.open("xb") as file:
            file.write(bytes(SIZE))
        super().__init__(self.path)

    def command(self, commands: Commands) -> None:
        """Write the commands with a heartbeat of this moment."""
        self._commands.write(replace(commands, heartbeat=clock.monotonic()))

    def report(self) -> Report | None:
        """The last step's report; None before the first."""
        return self._report.read()

    def learnt(self) -> Weights | None:
        """The step model's weights; None before the first step."""
        return self._learnt.read()

    def renew(self) -> None:
        """Prepare the page for another engine: it starts with the weights of the last one, and without a report."""
        if (learnt := self.learnt()) is not None:
            self._prior.write(learnt)
        self._report.clear()
        self._learnt.clear()

    def close(self) -> None:
        """Remove the page. A scheduler that still maps it reads no new heartbeat."""
        super().close()
        self.path.unlink(missing_ok=True)


class PageGuest(_Page):
    """The scheduler's side, inside the engine."""

    @classmethod
    def of_environment(cls, rank: int) -> "PageGuest | None":
        """The page that the environment names; None: this engine has no worker. Raises OSError."""
        prefix = os.environ.get(VARIABLE)
        return cls(path_of(prefix, rank)) if prefix else None

    def commands(self) -> Commands | None:
        """The last commands of the worker; None before the first ones."""
        return self._commands.read()

    def prior(self) -> Weights | None:
        """Weights to begin with; None if the worker knows none."""
        return self._prior.read()

    def publish(self, report: Report, learnt: Weights) -> None:
        """Publish the state after a step."""
        self._report.write(report)
        self._learnt.write(learnt)
