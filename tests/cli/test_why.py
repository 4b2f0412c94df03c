"""Claims about `slackwater why`, over HTTP."""

import asyncio
import json
import re
import uuid

import pytest

from app import clock
from app.cli import why
from app.db.pool import Database
from app.engines import service as engines
from app.engines.service import ensure_pool
from app.headroom import decision_log
from app.headroom.decision_log import AllowanceChange
from app.settings import Settings
from app.tenants import service as tenants
from tests.cli.support import TERMINAL, Run
from tests.queue import support


@pytest.fixture
def batch(settings: Settings, key: str) -> str:
    """Forty queued items of `acme` before a closed engine that changed its mind twice."""

    async def submit() -> str:
        async with Database.of(settings, "test") as database, database.durable() as conn:
            tenant = await tenants.find_tenant(conn, "acme")
            pool = await ensure_pool(conn, "toy")
            worker = await support.make_worker(database, pool, 300)
            found = await support.submit(database, tenant, pool, 40)
            engine = await engines.take_engine(
                conn, pool_id=pool, worker_id=worker, name="engine-0", url="http://e", mode="attached"
            )
            assert engine is not None
            said = {"signal": "step_seconds", "value": 0.031, "threshold": 0.025}
            await support.report_engine(conn, engine, worker, ready=True, reason="shrink_latency", allowance=0, **said)
            first = AllowanceChange("l1", 0, 16, "closed_unknown", "open", "load", 1.0, 62.0, 0, 0)
            second = AllowanceChange("l2", 16, 0, "open", "shrink_latency", "step_seconds", 0.031, 0.025, 12, 2)
            now = clock.monotonic()
            await decision_log.record(conn, engine, [(now - 90, first), (now - 40, second)])
            await conn.execute("update engine set reason_since = now() - interval '40 s'")
            return str(found.request_id)

    return asyncio.run(submit())


def test_the_reason_comes_first_then_the_chain_then_the_latest_decisions(run: Run, batch: str) -> None:
    lines = [line.rstrip() for line in run("why", batch).output.splitlines()]
    assert lines[0].startswith(
        "Waiting: engine-0 keeps its steps short: step time 31 ms, the aim is at most 25 ms, for "
    )
    assert lines[1].startswith("toy · 0 of 40 items done · since ")
    assert any(line.startswith("✗  shrink_latency") for line in lines)
    assert any(line.startswith("✓  engines") for line in lines)
    assert any(line.startswith("·  next") for line in lines)
    newest, oldest = (line.split("\t") for line in lines[-2:])
    assert newest[1:] == [
        "engine-0",
        "L2",
        "open → shrink_latency",
        "16 → 0",
        "step time 31 ms, the aim is at most 25 ms",
    ]
    assert oldest[2:] == ["L1", "closed_unknown → open", "0 → 16", "1 requests in it, 62 usable slots"]


def test_what_a_decision_has_not_changed_is_named_once() -> None:
    assert (why._turn("closed_unknown", "closed_unknown"), why._turn(16, 0)) == ("closed_unknown, as before", "16 → 0")


def test_a_terminal_of_80_columns_holds_all_of_it(run: Run, batch: str) -> None:
    shown = re.sub("\x1b[^m]*m", "", run("why", batch, env=TERMINAL).output)
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    assert "step time 31 ms, the aim is at most 25 ms" in words
    assert "16 → 0" in words
    assert "…" not in words


def test_json_has_the_same_and_last_limits_the_decisions(run: Run, batch: str) -> None:
    found = json.loads(run("why", batch, "--json", "--last", "1").output)
    assert found["waiting"]["code"] == "shrink_latency"
    assert found["waiting"]["since"].endswith("+00:00")
    assert next(link["code"] for link in found["chain"] if link["blocks"]) == "shrink_latency"
    [decision] = found["decisions"]
    assert decision["at"].endswith("+00:00")
    expected = {"engine": "engine-0", "layer": "l2", "allowance": 0, "credited": 2}
    assert expected.items() <= decision.items()


def test_a_batch_that_ended_waits_for_nothing(run: Run, batch: str) -> None:
    assert run("batch", "cancel", batch).exit_code == 0
    assert run("why", batch, "--last", "0").output.splitlines() == [
        "The batch is cancelled; it waits for nothing.",
        "toy · 0 of 40 items done",
    ]


def test_an_unknown_batch_is_two_readable_lines(run: Run, batch: str) -> None:
    shown = run("why", str(uuid.uuid4()))
    assert shown.exit_code == 1
    assert "No batch" in shown.output
