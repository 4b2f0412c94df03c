"""Arm `handoff`: on an idle system, how long a stored result waits until a worker has the item that is made of it.

Each pipeline has one line and a chain of stages, so that every hand-off finds an idle system. API, steward and worker are the
real processes, the engine is a fake. The times are those at which a reader of the database sees the parent's result, the child's
chunk, and its lease.
"""

import random
from collections.abc import Iterator
from itertools import pairwise
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import psycopg

from benchmarks.harness import open_testbed, say
from benchmarks.pipelines.callers import Step, Work, create
from benchmarks.pipelines.served import Served, TimedModel, served
from benchmarks.pipelines.speedup import lines
from benchmarks.statistics import percentiles

MODEL = "only"
STAGES = 8
ENGINE_SECONDS = 0.05
LOOK_SECONDS = 0.002
LIMIT_SECONDS = 60.0
_PAUSE_SECONDS = (0.02, 0.5)  # between two pipelines; random, so that they begin at all phases of whoever polls
_BATCHES = "select s.batch_id from pipeline p join stage s using (pipeline_id) where p.request_id = %s and s.n > 0 order by s.n"
_STORED = b"select exists (select from item_result where batch_id = %s)"
_CLAIMABLE = (
    b"select exists (select from chunk where batch_id = %s) or exists (select from item_result where batch_id = %s)"
)
_LEASED = _CLAIMABLE.replace(b"batch_id = %s)", b"batch_id = %s and state = 'leased')", 1)


def handoff_idle(*, pipelines: int = 60) -> dict[str, Any]:
    """Milliseconds from a stored result until the chunk of its child is leased (`handoff_idle_ms_*`), and until it can be
    (`handoff_claimable_ms_*`).
    """
    with open_testbed("") as testbed, served(testbed, [TimedModel(MODEL, 8, ENGINE_SECONDS)]) as installation:
        steps = [
            Step(f"stage-{n}", MODEL, [{"role": "user", "content": f"{n} {{{{text}}}}"}]) for n in range(1, STAGES)
        ]
        first = Step("stage-0", MODEL, [{"role": "user", "content": "{{item.text}}"}])
        work = Work(lines(1), [first, *steps], 0, testbed.folder)
        with psycopg.connect(installation.settings.database_url, autocommit=True) as conn:
            list(_chain(installation, work, conn))  # plans are made
            found = [each for _ in range(pipelines) for each in _chain(installation, work, conn)]
    figures: dict[str, Any] = {"handoff_samples": len(found), "handoff_engine_ms": ENGINE_SECONDS * 1e3}
    for name, values in zip(("claimable", "idle"), zip(*found, strict=True), strict=True):
        p50, p99 = percentiles([1e3 * seconds for seconds in values])
        figures |= {f"handoff_{name}_ms_p50": round(p50, 1), f"handoff_{name}_ms_p99": round(p99, 1)}
    say(f"handoff: {figures}")
    return figures


def _chain(installation: Served, work: Work, conn: psycopg.Connection[Any]) -> Iterator[tuple[float, float]]:
    """Seconds until the child can be claimed and until it is, for each hand-off of one pipeline."""
    public_id = create(installation.client, work)
    batches = [row[0] for row in conn.execute(_BATCHES, (UUID(public_id.partition("_")[2]),)).fetchall()]
    for parent, child in pairwise(batches):
        stored = _until(conn, _STORED, parent)
        yield _until(conn, _CLAIMABLE, child, child) - stored, _until(conn, _LEASED, child, child) - stored
    _until(conn, _STORED, batches[-1])
    sleep(random.uniform(*_PAUSE_SECONDS))


def _until(conn: psycopg.Connection[Any], query: bytes, *batches: int) -> float:
    """The second at which the query is true."""
    deadline = monotonic() + LIMIT_SECONDS
    while not (row := conn.execute(query, batches).fetchone()) or not row[0]:
        if monotonic() > deadline:
            raise SystemExit(f"a hand-off took more than {LIMIT_SECONDS:.0f} s")
        sleep(LOOK_SECONDS)
    return monotonic()
