"""Arm of benchmarks.queue: the latency of a single item beyond its engine time, on an idle installation."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import psycopg

from app import processes
from app.cli.key import create_key
from app.environment import child_environment
from app.settings import Settings
from benchmarks.harness import ACCOUNT, ROOT, Api, Testbed, end, say, until_ready
from benchmarks.statistics import percentiles
from testing.waiting import LIMIT_SECONDS, wait_for

ENGINE_SECONDS = 0.05
PAUSE_SECONDS = (0.02, 0.5)  # random, so that submits fall on all phases of the worker's polling


def single(testbed: Testbed, samples: int) -> dict[str, Any]:
    """Milliseconds from the submit until the result can be read from the database, less the engine time."""
    port = processes.free_port()
    settings = testbed.settings(testbed.database(), engine_url=f"http://127.0.0.1:{port}")
    engine = [sys.executable, "-m", "testing.fakes.engine", "--port", str(port), "--latency", str(ENGINE_SECONDS)]
    with _running(engine, Settings()), _running([sys.executable, "-m", "app.cli.main", "up"], settings):
        until_ready(settings)
        client = Api(settings, create_key(settings, ACCOUNT, "benchmark", 1))
        with psycopg.connect(settings.database_url, autocommit=True) as conn:
            ready = "select 1 from engine where state = 'ready' and allowance > 0"
            wait_for(lambda: conn.execute(ready).fetchone(), "a ready engine")
            rng = random.Random(7)
            for _ in range(5):
                _one(client, conn)
            latencies = []
            for _ in range(samples):
                sleep(rng.uniform(*PAUSE_SECONDS))
                latencies.append((_one(client, conn) - ENGINE_SECONDS) * 1e3)
    p50, p99 = percentiles(latencies)
    say(f"single item: p50 {p50:.0f} ms, p99 {p99:.0f} ms beyond the engine")
    return {
        "single_item_overhead_p50_ms": round(p50, 1),
        "single_item_overhead_p99_ms": round(p99, 1),
        "single_item_engine_ms": ENGINE_SECONDS * 1e3,
        "single_item_samples": samples,
    }


def _one(client: Api, conn: psycopg.Connection) -> float:
    """Seconds from the submit of one item to its visible result."""
    began = monotonic()
    request_id = client.submit([{"prompt": "Say something.", "max_tokens": 8}])
    while not conn.execute(
        "select 1 from item_result r join batch b using (batch_id) where b.request_id = %s", (request_id,)
    ).fetchone():
        if monotonic() - began > LIMIT_SECONDS:
            raise SystemExit("a single item got no result")
        sleep(0.003)
    return monotonic() - began


@contextmanager
def _running(command: list[str], settings: Settings) -> Iterator[None]:
    process = subprocess.Popen(
        command,
        env=child_environment(settings, {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
    )
    try:
        yield
    finally:
        end(process)
