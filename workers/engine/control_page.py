"""The control page: one memory-mapped file between the worker and the scheduler in one engine-core process.

    worker -> scheduler   Commands: mode, budgets, heartbeat       Weights: what an earlier engine had learnt
    scheduler -> worker   Report: what the last step was           Weights: what this engine has learnt

Four records, each with one writer and a checksum: a reader that meets a half-written record reads again. A look costs
microseconds and no system call, so both sides may look at every step. Times are CLOCK_MONOTONIC, one clock for all
processes of a machine.
"""

import mmap
import os
import zlib
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

from app import clock
from workers.engine.step_plan import Budgets

VARIABLE = "HARVEST_PAGE"  # environment of the engine: the path of its pages without the rank
SILENT_SECONDS = 2.0  # a worker that has not written for so long is gone
SIZE = 1024
_TRIES = 100
_DOWN, _PRIOR, _UP, _LEARNT = 0, 256, 384, 896


@dataclass(frozen=True, slots=True)
class Commands:
    """What the worker wants. `harvest` off: vLLM schedules as if we were not there."""

    heartbeat: float = 0.0
    harvest: bool = True
    itl: float = Budgets.itl
    idle_cap: float = Budgets.idle_cap
    tolerance: float = Budgets.tolerance
    stretch: float = Budgets.stretch
    idle_stretch: float = Budgets.idle_stretch
    chunk: int = Budgets.chunk
    kv_reserve: float = Budgets.kv_reserve
    error: float = Budgets.error

    def budgets(self) -> Budgets:
        """The part that the planner takes."""
        return Budgets(*(getattr(self, f.name) for f in fields(Budgets)))


class Weights(NamedTuple):
    """What `StepModel.of` takes; all zero: nothing known."""

    base: float = 0.0
    below: float = 0.0
    per_context: float = 0.0
    bend: float = 0.0
    knee: float = 0.0


@dataclass(slots=True)
class Report:
    """The state of the scheduler after a step; counters run since the engine's start.

    `at`: when the step was scheduled. `supported`: this vLLM is one we were tested with. `tripped`: a fault has made
    the scheduler shed batch until the engine restarts. `silent`: it sheds because the worker is not heard.
    `trusted`: the model's error is within bounds. `step_seconds` and `predicted_seconds` are of the last finished
    step, `plan_seconds` of the last plan; `allowed_seconds` is what the last step was fitted into.
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
    """One record of the page: its fields as doubles, then a checksum. Reading answers None where there is none."""

    def __init__(self, kind: type[T], page: mmap.mmap, offset: int) -> None:
        names = list(kind.__annotations__)
        self._kind, self._page = kind, page
        self._casts = [
            {"bool": bool, "int": int}.get(str(getattr(t, "__name__", t)), float) for t in kind.__annotations__.values()
        ]
        self._values = attrgetter(*names)
        self._struct = Struct(f"<{len(names)}d")
        self._body = slice(offset, offset + self._struct.size)
        self._whole = slice(offset, offset + self._struct.size + 4)

    def write(self, record: T) -> None:
        body = self._struct.pack(*self._values(record))
        self._page[self._whole] = body + zlib.crc32(body, 1).to_bytes(4, "little")

    def clear(self) -> None:
        self._page[self._whole] = bytes(self._struct.size + 4)

    def read(self) -> T | None:
        for _ in range(_TRIES):
            whole = self._page[self._whole]
            body = whole[:-4]
            if zlib.crc32(body, 1).to_bytes(4, "little") == whole[-4:]:
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
        """Let go of the memory; the file stays."""
        self._map.close()


def path_of(prefix: str | Path, rank: int = 0) -> Path:
    """The file of one engine-core process; `rank` is its data-parallel rank."""
    return Path(f"{prefix}.{rank}")


class PageOwner(_Page):
    """The worker's side. Creates the file, so it must come before the engine's start; removes it on `close`.

    Raises FileExistsError where the page is another's.
    """

    def __init__(self, prefix: str | Path, rank: int = 0) -> None:
        self.path = path_of(prefix, rank)
        with self.path.open("xb") as file:
            file.write(bytes(SIZE))
        super().__init__(self.path)

    def command(self, commands: Commands) -> None:
        """Write the commands and, with them, the heartbeat of now."""
        values = {f.name: getattr(commands, f.name) for f in fields(Commands)}
        self._commands.write(Commands(**values | {"heartbeat": clock.monotonic()}))

    def report(self) -> Report | None:
        """The last step's report; None before the first."""
        return self._report.read()

    def learnt(self) -> Weights | None:
        """The step model's weights; None before the first step."""
        return self._learnt.read()

    def renew(self) -> None:
        """Before another engine: it begins with what the last one had learnt, and has said nothing yet."""
        if (learnt := self.learnt()) is not None:
            self._prior.write(learnt)
        self._report.clear()
        self._learnt.clear()

    def close(self) -> None:
        """Take the page away: a scheduler that still maps it hears no heartbeat."""
        super().close()
        self.path.unlink(missing_ok=True)


class PageGuest(_Page):
    """The scheduler's side, inside the engine."""

    @classmethod
    def of_environment(cls, rank: int) -> "PageGuest | None":
        """The page that the environment names, or None: nobody commands this engine. Raises OSError."""
        prefix = os.environ.get(VARIABLE)
        return cls(path_of(prefix, rank)) if prefix else None

    def commands(self) -> Commands | None:
        """What the worker last wrote; None before its first word."""
        return self._commands.read()

    def prior(self) -> Weights | None:
        """Weights to begin with; None where the worker knows none."""
        return self._prior.read()

    def tell(self, report: Report, learnt: Weights) -> None:
        """Publish the state after a step."""
        self._report.write(report)
        self._learnt.write(learnt)
