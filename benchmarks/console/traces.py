"""Arm `traces`: one worker drains a batch on an engine that answers at once, with traces and without, in alternating order.

Worker, steward, engine and collector are processes of their own. The engine is the tests' fake; it answers at once, so the worker
itself is the bottleneck, and what a span costs it is seen at its largest. One in a thousand items is refused by the engine. A
drain is timed from the first result until the batch is final, by the database's clock. `trace_worker_cpu_ratio` compares the
processor time of the worker in that time, which moves less with what else the machine does.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from time import monotonic, sleep
from typing import Any

import psycopg

from app import processes
from app.environment import foreign_environment
from app.settings import Settings
from benchmarks.harness import ROOT, Testbed, cpu_seconds, end, part, say
from benchmarks.queue.workload import fill
from benchmarks.statistics import interval

_ENDS_IN = "0007 "  # the numbers of the items that the engine refuses; each item begins with its number
_LIMIT_SECONDS = 900.0


@dataclass(frozen=True)
class Drain:
    """How a drain went. `cpu_seconds`: of the worker."""

    rate: float
    cpu_seconds: float
    failed: int


def drains(testbed: Testbed, items: int, pairs: int) -> dict[str, Any]:
    """Spans and failures of the traced drains, and the ratio of the rates with and without traces."""
    runs: dict[bool, list[Drain]] = {True: [], False: []}
    spans: list[int] = []
    all_told = True
    for pair in range(pairs):
        for traced in (True, False) if pair % 2 == 0 else (False, True):
            with _collector() as collector:
                run = _drain(testbed, items, collector.url if traced else "")
                count, told = collector.counts()
            runs[traced].append(run)
            if traced:
                spans.append(count)
                all_told &= told == run.failed
            testbed.clear()
            say(f"drain {'with' if traced else 'without'} traces: {run.rate:,.0f} items/s")
    ratios = [with_traces.rate / plain.rate for with_traces, plain in zip(runs[True], runs[False], strict=True)]
    middle, low, high = interval(ratios)
    cpu = [sum(run.cpu_seconds for run in runs[traced]) for traced in (True, False)]
    return {
        "spans_per_50k_items": round(max(spans) * 50_000 / items),
        "spans_samples": spans,
        "every_failed_item_found": all_told,
        "trace_drain_ratio": round(middle, 4),
        "trace_drain_ratio_interval": [round(low, 4), round(high, 4)],
        "trace_drain_ratio_samples": [round(ratio, 4) for ratio in ratios],
        "trace_worker_cpu_ratio": round(cpu[0] / cpu[1], 4),
        "traced_drain_items_s": round(median(run.rate for run in runs[True])),
        "plain_drain_items_s": round(median(run.rate for run in runs[False])),
        "trace_drain_items": items,
    }


def _drain(testbed: Testbed, items: int, otlp_endpoint: str) -> Drain:
    with _engine() as url:
        changes = {"engine_url": url, "otlp_endpoint": otlp_endpoint, "batch_max_in_flight": 64}
        settings = testbed.settings(testbed.database(), worker_metrics_port=0, headroom="static", **changes)
        asyncio.run(fill(settings, items))
        with part(settings, "workers.steward"), part(settings, "workers.gpu") as worker:
            return _timed(settings, items, worker.pid)


def _timed(settings: Settings, items: int, pid: int) -> Drain:
    """Wait until the batch is final."""
    deadline = monotonic() + _LIMIT_SECONDS
    began: tuple[float, float] | None = None
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        while monotonic() < deadline:
            row = conn.execute(
                """select finalized_at is not null, failed, exists (select from item_result), ok + failed,
                          extract(epoch from clock_timestamp())::float8 from batch"""
            ).fetchone()
            assert row
            final, failed, begun, done, now = row
            if began is None and begun:
                began = now, cpu_seconds(pid)
            if final:
                if done != items or began is None:
                    raise SystemExit(f"the batch ended with {done} of {items} items")
                return Drain(items / (now - began[0]), cpu_seconds(pid) - began[1], failed)
            sleep(0.05)
    raise SystemExit(f"the batch was not drained within {_LIMIT_SECONDS:g} s")


@contextlib.contextmanager
def _engine() -> Iterator[str]:
    rules = json.dumps([{"match": _ENDS_IN, "mode": "status", "status": 400, "message": "no"}])
    with _process("testing.fakes.engine", "--script", rules) as process:
        assert process.stdout
        yield process.stdout.readline().strip()


class _Collector:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin
        assert process.stdout
        self._in, self._out = process.stdin, process.stdout
        self.url = self._out.readline().strip()

    def counts(self) -> tuple[int, int]:
        """The spans that have arrived, and the failed items that they tell of. Call when their processes have ended."""
        self._in.write("\n")
        self._in.flush()
        spans, failed = self._out.readline().split()
        return int(spans), int(failed)


@contextlib.contextmanager
def _collector() -> Iterator[_Collector]:
    with _process("testing.fakes.otlp_receiver") as process:
        yield _Collector(process)


@contextlib.contextmanager
def _process(module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=foreign_environment(),
        start_new_session=True,
        preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
    )
    try:
        yield process
    finally:
        end(process)
