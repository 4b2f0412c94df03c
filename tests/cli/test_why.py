"""Claims about `slackwater why`, run as a user runs it."""

import asyncio
import json
import uuid

import pytest

from app import clock
from app.cli import admin
from app.db.pool import Database
from app.engines import service as engines
from app.engines.service import ensure_pool
from app.headroom import journal
from app.headroom.journal import Change
from app.queue.ingest import NewBatch
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.test_admin import slackwater
from tests.queue import support


@pytest.fixture
def batch(settings: Settings) -> NewBatch:
    """Forty queued items of `local` before a closed engine that changed its mind twice."""

    async def submit() -> NewBatch:
        async with Database.of(settings, "test") as database, database.durable() as conn:
            tenant = await tenants.find_tenant(conn, "local")
            pool = await ensure_pool(conn, "toy")
            worker = await support.make_worker(database, pool, 300)
            found = await support.submit(database, tenant, pool, 40)
            engine = await engines.take_engine(
                conn, pool_id=pool, worker_id=worker, name="engine-0", url="http://e", mode="attached"
            )
            assert engine is not None
            said = {"signal": "step_seconds", "value": 0.031, "threshold": 0.025}
            await engines.report_engine(conn, engine, worker, ready=True, reason="shrink_latency", allowance=0, **said)
            first = Change("l1", 0, 16, "closed_unknown", "open", "load", 1.0, 62.0, 0, 0)
            second = Change("l2", 16, 0, "open", "shrink_latency", "step_seconds", 0.031, 0.025, 12, 2)
            now = clock.monotonic()
            await journal.record(conn, engine, [(now - 90, first), (now - 40, second)])
            await conn.execute("update engine set reason_since = now() - interval '40 s'")
            return found

    admin.create_key(settings, "local", "test", 1)
    return asyncio.run(submit())


def test_the_reason_comes_first_then_the_chain_then_the_latest_decisions(settings: Settings, batch: NewBatch) -> None:
    done = slackwater(settings, "why", str(batch.request_id))
    assert done.returncode == 0, done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0].startswith("Waiting: engine-0 serves synchronous requests: step time 31 ms, limit 25 ms, for ")
    assert lines[1].startswith("toy · 0 of 40 items done, 0 failed · since ")
    assert any(line.startswith("✗  shrink_latency") for line in lines)
    assert any(line.startswith("✓  engines") for line in lines)
    assert any(line.startswith("·  next") for line in lines)
    newest, oldest = (i for i, line in enumerate(lines) if "│ L2" in line or "│ L1" in line)
    assert "│ 16 → 0" in lines[newest]
    assert "│ 1 of 62 usable slots taken" in lines[oldest]
    assert newest < oldest


def test_json_has_the_same_and_last_limits_the_decisions(settings: Settings, batch: NewBatch) -> None:
    done = slackwater(settings, "why", str(batch.request_id), "--json", "--last", "1")
    found = json.loads(done.stdout)
    assert found["waiting"]["code"] == "shrink_latency"
    assert found["waiting"]["since"].endswith("+00:00")
    assert next(link["code"] for link in found["chain"] if link["blocks"]) == "shrink_latency"
    [decision] = found["decisions"]
    assert (decision["engine"], decision["layer"], decision["allowance"], decision["credited"]) == (
        "engine-0",
        "l2",
        0,
        2,
    )


def test_a_batch_that_ended_waits_for_nothing(settings: Settings, batch: NewBatch) -> None:
    assert slackwater(settings, "batch", "cancel", str(batch.request_id)).returncode == 0
    done = slackwater(settings, "why", str(batch.request_id), "--last", "0")
    assert done.stdout.splitlines() == [
        "The batch is cancelled; it waits for nothing.",
        "toy · 0 of 40 items done, 0 failed",
    ]


def test_an_unknown_batch_is_two_readable_lines(settings: Settings, batch: NewBatch) -> None:
    done = slackwater(settings, "why", str(uuid.uuid4()))
    assert done.returncode == 1
    assert "No batch" in done.stderr
    assert "Traceback" not in done.stderr
