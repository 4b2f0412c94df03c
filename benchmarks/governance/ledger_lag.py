"""Arm: how soon a request that has ended is in the ledger."""

import random
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

import httpx
import psycopg

from benchmarks.gateway.installation import CHAT, RunningGateway, installation, timed_engine
from benchmarks.harness import MODEL, RUN, Testbed, part, say
from benchmarks.statistics import percentiles

_POLL_SECONDS = 0.01
_MOST_SECONDS = 30.0


def lag(testbed: Testbed, count: int) -> dict[str, Any]:
    """Seconds from the answer, or from the poll that shows the batch as final, until the usage has it."""
    with timed_engine(latency=0.01, answer_tokens=4) as engine, installation(testbed, [engine]) as ours:
        settings = testbed.settings(ours.database_url)
        with part(settings, "workers.steward"), psycopg.connect(ours.database_url, autocommit=True) as conn:
            synchronous = [_lag(conn, lambda: _answer(ours)) for _ in range(count)]
            queued = [_lag(conn, lambda: _batch(ours)) for _ in range(count)]
    found: dict[str, Any] = {}
    for name, samples in (("sync", synchronous), ("batch", queued)):
        p50, p99 = percentiles(samples)
        say(f"ledger lag, {name}: p50 {p50:.2f} s, p99 {p99:.2f} s")
        found |= {f"ledger_lag_{name}_s_p50": round(p50, 3), f"ledger_lag_{name}_s_p99": round(p99, 3)}
    return found | {"ledger_lag_s_p99": round(percentiles([*synchronous, *queued])[1], 3)}


def _lag(conn: psycopg.Connection, finish: Callable[[], None]) -> float:
    sleep(random.uniform(0, 1))  # the writer wakes once a second
    before = _booked(conn)
    finish()
    ended = monotonic()
    while _booked(conn) == before:
        if monotonic() - ended > _MOST_SECONDS:
            raise SystemExit(f"a request is not in the ledger after {_MOST_SECONDS:.0f} s")
        sleep(_POLL_SECONDS)
    return monotonic() - ended


def _booked(conn: psycopg.Connection) -> int:
    row = conn.execute("select coalesce(sum(requests), 0) from usage").fetchone()
    assert row
    return int(row[0])


def _answer(ours: RunningGateway) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
    httpx.post(ours.base + CHAT, json=body, headers=dict(ours.headers)).raise_for_status()


def _batch(ours: RunningGateway) -> None:
    with httpx.Client(base_url=ours.base, headers=dict(ours.headers)) as client:
        items = [{"prompt": "hello", "max_tokens": 4}]
        made = client.post(RUN, params={"queueRequest": "true"}, json={"requests": items}).raise_for_status()
        request_id = made.json()["result"]["request_id"]
        while client.post(RUN, json={"request_id": request_id}).json()["result"].get("status") in ("queued", "running"):
            sleep(_POLL_SECONDS)
