"""Arm `feed`: how fast the steward's feeder makes the children of stored results.

A pipeline of several stages, one child for each item, whose request has the line of the input and the parent's answer in it. The
API takes the pipeline; worker processes of the queue benchmark store 800-byte answers of a stage, 32 in a flush; then the feeder
hands them on, alone, in this process, beside its PostgreSQL server on the same machine.
"""

import asyncio
from statistics import median
from time import monotonic
from typing import Any

import psycopg

from app.admission.control import AdmissionControl
from app.db.pool import Database
from app.memory import collect_seldom
from app.pipelines.feeding import Feeder
from app.settings import Settings
from benchmarks.harness import MODEL, Testbed, api, open_testbed, say
from benchmarks.openai_batch.slot_engine import client_of
from benchmarks.pipelines.callers import Step, Work, create
from benchmarks.pipelines.speedup import lines
from benchmarks.queue.drain import race
from benchmarks.queue.workload import pool_at

STAGES = 4
ROWS = 32  # results in a flush, the default
LINE_WORDS = 60


def feed(*, items: int = 20_000) -> dict[str, Any]:
    """`feed_items_s`: children of stored answers that are made in a second; the median of the stages. `feed_input_items_s`: of
    the lines of an input.
    """
    collect_seldom()  # as the steward does
    with open_testbed("") as testbed:
        settings = testbed.settings(testbed.database())
        with api(settings) as (_, key):
            work = Work(lines(items, LINE_WORDS), _steps(), 0, testbed.folder)
            create(client_of(f"http://{settings.host}:{settings.port}/v1", key), work)
        rates = [_hand_on(settings)]
        for _ in range(STAGES - 1):
            race(settings.database_url, asyncio.run(pool_at(settings.database_url)), ROWS)
            rates.append(_hand_on(settings))
            say(f"feed: {rates[-1]:,.0f} items/s")
        _check(testbed, settings, items)
    return {
        "feed_items_s": round(median(rates[1:])),
        "feed_items_s_samples": [round(rate) for rate in rates[1:]],
        "feed_input_items_s": round(rates[0]),
        "feed_items": items,
    }


def _steps() -> list[Step]:
    first = [{"role": "user", "content": "{{item.text}}"}]
    later = [{"role": "user", "content": "{{item.text}}\n{{text}}"}]
    return [Step(f"stage-{n}", MODEL, later if n else first) for n in range(STAGES)]


def _hand_on(settings: Settings) -> float:
    """Hand on all that is stored. Returns items a second."""

    async def run() -> float:
        async with Database(settings.database_url, size=2) as database:
            feeder, began = Feeder(database, settings, AdmissionControl.of(database, settings)), monotonic()
            while await feeder.step():
                pass
            return feeder.handed_on["ran"] / (monotonic() - began)

    return asyncio.run(run())


def _check(testbed: Testbed, settings: Settings, items: int) -> None:
    """Every stage must have every item, and no marker may be left."""
    with psycopg.connect(settings.database_url) as conn:
        counts = conn.execute(
            """select (select count(*) from item_payload p where p.batch_id = s.batch_id) from stage s where s.n > 0
               union all select count(*) + %s from handoff""",
            (items,),
        ).fetchall()
    if counts != [(items,)] * (STAGES + 1):
        raise SystemExit(f"the feeder lost count: {counts}")
    testbed.clear()
