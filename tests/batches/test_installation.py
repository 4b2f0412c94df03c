"""Claims about the status of an installation: missing parts, and engines with problems."""

import asyncio
import json
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.batches import installation_status
from app.batches.protection import Protection, Times
from app.db import cluster, embedded
from app.db.pool import Database
from app.duties.schedule import BY_NAME
from app.duties.standing import Standing
from app.engines import adoption
from app.engines import service as engines
from app.engines.overview import EngineInfo
from app.queue import overview
from app.queue.item_counts import ItemCounts
from app.queue.overview import Overview
from app.queue.types import Kind
from app.settings import Settings
from app.storage import store
from testing.fakes.installation import CALM, MISSING, WRONG, engine
from tests.queue import support
from workers.steward import leader


def judged(*told: EngineInfo, seen: Overview | None = CALM) -> tuple[str, list[str]]:
    """The status and the codes of the problems."""
    document = installation_status.describe(told, seen)
    assert all(problem["message"] and problem["remedy"] for problem in document["problems"])
    return document["status"], [problem["code"] for problem in document["problems"]]


GONE = {"alive": False, "silent_seconds": 90.0}


def test_with_all_parts_and_a_working_engine_the_status_is_ok_with_a_message() -> None:
    assert judged(engine()) == ("ok", [])
    document = installation_status.describe([engine()], CALM)
    assert document["engines"][0]["message"] == "engine-0 takes batch work, for 40 s"
    parts = ("api", "database", "steward", "notifier", "maintenance")
    assert document["parts"] == {**dict.fromkeys(parts, "ok"), "workers": 1}
    assert "url" not in document["engines"][0]


@pytest.mark.parametrize(
    ("told", "verdict", "codes"),
    [
        ([], "down", ["no_engine"]),
        ([engine(**MISSING)], "down", ["model_missing"]),
        ([engine(), engine(name="other", **MISSING)], "degraded", ["model_missing"]),
        ([engine(mode="managed", state="down", reason="engine_down", problems=[WRONG])], "degraded", ["model_missing"]),
        ([engine(**GONE)], "down", ["no_worker"]),
        ([engine(), engine(name="other", **GONE)], "degraded", ["no_worker"]),
        ([engine(), engine(name="other", state="down", reason="released", free=True, **GONE)], "ok", []),
        ([engine(**MISSING, alive=False, free=True)], "down", ["model_missing"]),
        ([engine(**MISSING, free=True, **GONE)], "down", ["model_missing", "no_worker"]),
        ([engine(**MISSING, **GONE)], "down", ["no_worker"]),
        ([engine(intake="draining")], "down", ["drained"]),
        ([engine(), engine(name="other", intake="returning")], "degraded", ["drained"]),
        ([engine(intake="draining", mode="managed", state="starting")], "down", ["drained"]),
        ([engine(reason="closed_unknown")], "degraded", ["no_telemetry"]),
        ([engine(reason="closed_unknown", held_seconds=1.0)], "ok", []),
        ([engine(problems=[{**WRONG, "code": "no_priority_scheduling"}])], "degraded", ["no_priority_scheduling"]),
    ],
)
def test_the_verdict_follows_from_the_engines(told: list[EngineInfo], verdict: str, codes: list[str]) -> None:
    assert judged(*told) == (verdict, codes)


@pytest.mark.parametrize(
    ("told", "codes"),
    [([engine()], ["model_unserved"]), ([engine(), engine(name="other", model="old")], []), ([engine(**GONE)], [])],
)
def test_batches_for_a_model_that_no_engine_serves_are_warned_of_while_others_are_served(
    told: list[EngineInfo], codes: list[str]
) -> None:
    document = installation_status.describe(told, replace(CALM, waiting={"old": [Kind.BATCH]}))
    warned = [problem for problem in document["problems"] if problem["severity"] == "warning"]
    assert [problem["code"] for problem in warned] == codes
    assert all(problem["message"] == "Batches for old wait, but no engine serves it." for problem in warned)


@pytest.mark.parametrize(
    ("kinds", "who", "how"),
    [
        ([Kind.RESPONSE], "Background responses", " To end them: POST /v1/responses/{id}/cancel."),
        ([Kind.STAGE], "Pipelines", " To end them: slackwater pipeline list, slackwater pipeline cancel."),
        ([Kind.FLEX], "Flex calls", ""),
        (
            [Kind.BATCH, Kind.FLEX],
            "Batches and flex calls",
            " To end them: slackwater batch list, slackwater batch cancel.",
        ),
    ],
)
def test_what_waits_for_an_engine_is_called_what_it_is(kinds: list[Kind], who: str, how: str) -> None:
    document = installation_status.describe([engine()], replace(CALM, waiting={"old": kinds}))
    [problem] = document["problems"]
    assert problem["message"] == f"{who} for old wait, but no engine serves it."
    assert problem["remedy"] == f"They are kept until one does.{how}"


async def test_the_overview_counts_the_batches_that_wait_only_for_money(database: Database) -> None:
    async with database.durable() as conn:
        tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        for _ in range(3):
            await support.submit(database, tenant, pool, 4)
        await conn.execute(
            "insert into batch_phase (batch_id, tenant_id, code) select batch_id, tenant_id,"
            " case when row_number() over (order by batch_id) < 3 then 'budget' else 'running' end from batch"
        )
        found = await overview.overview(conn)
    assert (found.open_batches, found.moneyless) == (3, 2)


async def test_the_overview_knows_what_waits_for_a_model_without_an_engine(database: Database) -> None:
    async with database.durable() as conn:
        tenant, old, served = (
            await support.make_tenant(conn),
            await support.make_pool(conn, "old"),
            await support.make_pool(conn),
        )
        for pool in (old, served):
            await support.submit(database, tenant, pool, 4)
        await conn.execute("update batch set kind = 'response' where batch_id = (select min(batch_id) from batch)")
        await support.make_engine(conn, database, served)
        assert (await overview.overview(conn)).waiting == {"old": ["response"], "toy": []}


def test_slots_that_an_engine_does_not_tell_are_a_warning_and_not_an_error() -> None:
    told = engine(problems=[asdict(adoption.slots_unknown(0))])
    document = installation_status.describe([told], CALM)
    assert (document["status"], [each["severity"] for each in document["problems"]]) == ("warning", ["warning"])
    assert judged(engine(problems=[asdict(adoption.slots_wrong(32, 8))]))[0] == "degraded"


def test_who_starts_a_worker_again_is_said_for_up_and_without_it() -> None:
    [problem] = installation_status.describe([engine(), engine(name="b", **GONE)], CALM)["problems"]
    assert problem["remedy"].startswith(
        "slackwater up restarts it by itself, see slackwater logs gpu-worker; without up"
    )


def test_nothing_that_a_silent_worker_said_of_its_engine_is_told_as_if_it_were_so_now() -> None:
    told = engine(reason="open", signal="quiet_seconds", value=420.0, **GONE)
    [view] = installation_status.describe([told], CALM)["engines"]
    assert (view["state"], view["reason"]) == ("down", "no_worker")
    assert view["message"] == "engine-0 has no worker: the last report of one was 90 s ago"
    assert (view["slots"], view["allowance"], view["protection"]) == (None, None, None)
    lapsed = engine(state="down", reason="engine_down", alive=False, silent_seconds=12.0)
    assert installation_status.describe([lapsed], CALM)["engines"][0]["reason"] == "no_worker"
    assert judged(lapsed) == ("down", ["no_worker"])


def test_a_managed_engine_that_its_worker_starts_is_starting_and_not_down() -> None:
    told = engine(mode="managed", state="down", reason="engine_down")
    [view] = installation_status.describe([told], CALM)["engines"]
    assert (view["state"], view["message"]) == ("starting", "engine-0 is starting, for 40 s")
    [view] = installation_status.describe([replace(told, mode="attached")], CALM)["engines"]
    assert (view["state"], view["message"]) == ("down", "engine-0 does not answer, for 40 s")


def test_an_engine_whose_worker_misses_heartbeats_is_warned_of_before_its_lease_ends() -> None:
    told = engine(overdue=True, silent_seconds=8.0)
    document = installation_status.describe([told], CALM)
    assert document["status"] == "warning"
    assert document["engines"][0]["message"] == "engine-0 takes batch work, for 40 s; last report 8 s ago"
    assert [problem["code"] for problem in document["problems"]] == ["worker_silent"]
    assert judged(replace(told, alive=False, silent_seconds=90.0)) == ("down", ["no_worker"])


async def test_a_worker_that_has_missed_heartbeats_is_not_counted_as_running(database: Database) -> None:
    async with database.durable() as conn:
        await conn.execute("insert into pool (model) values ('m')")
        await conn.execute(
            "insert into worker (pool_id, host, pid, renewed_at, lease_until)"
            " select pool_id, 'h', 1, now() - age, now() - age + interval '1 hour'"
            " from pool, (values (interval '1 minute'), (interval '40 minutes')) v (age)"
        )
        assert (await overview.overview(conn)).workers == 1


def test_without_a_database_everything_else_is_unknown_and_the_installation_down() -> None:
    assert judged(seen=None) == ("down", ["database_away"])
    document = installation_status.describe((), None)
    assert document["parts"]["steward"] == "unknown"
    assert set(document["queue"].values()) == {None}


def test_a_missing_steward_notifier_or_maintenance_worker_degrades_the_status() -> None:
    seen = Overview(ItemCounts(0, 0, 0), 0, None, 1, steward=False, notifier=False, maintenance=False)
    assert judged(engine(), seen=seen) == ("degraded", ["steward_away", "notifier_away", "maintenance_away"])


AWAY = Overview(ItemCounts(0, 0, 0), 0, None, 1, steward=False, notifier=False, maintenance=False)


def test_parts_that_have_not_come_back_to_a_database_that_has_just_started_are_a_warning() -> None:
    told = engine(alive=False, silent_seconds=40.0)
    document = installation_status.describe([engine(name="b"), told], replace(AWAY, database_seconds=12.0))
    assert document["status"] == "warning"
    assert [problem["message"] for problem in document["problems"]] == [
        "The steward is not connected to the database, which started 12 s ago.",
        "The notifier is not connected to the database, which started 12 s ago.",
        "The maintenance worker is not connected to the database, which started 12 s ago.",
        "Its worker has not reported to the database, which started 12 s ago.",
    ]
    assert judged(engine(), seen=replace(AWAY, database_seconds=61.0))[0] == "degraded"


def test_a_worker_that_has_reported_since_the_start_of_the_database_is_missed() -> None:
    told = engine(alive=False, silent_seconds=40.0)
    assert judged(engine(name="b"), told, seen=replace(CALM, database_seconds=50.0)) == ("degraded", ["no_worker"])


@pytest.mark.parametrize(("embedded", "remedy"), [(True, "Wait: it is that of slackwater up"), (False, "Start it, or")])
async def test_who_starts_the_database_again_is_said(*, embedded: bool, remedy: str) -> None:
    nowhere = "postgresql://127.0.0.1:1/none"
    async with Database(nowhere, size=1) as database:
        installation = installation_status.Installation(database, Settings(database_url="" if embedded else nowhere))
        [problem] = (await installation.status())["problems"]
    assert problem["code"] == "database_away"
    assert problem["remedy"].startswith(remedy)


async def test_a_database_that_takes_too_long_is_not_away_and_what_it_said_last_is_shown_for_a_minute(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(installation_status.clock, "monotonic", lambda: now)
    monkeypatch.setattr(installation_status, "PATIENCE_SECONDS", 0.2)
    async with Database(settings.database_url, size=1) as database:
        first, later = (installation_status.Installation(database, settings) for _ in range(2))
        before = await later.status()
        async with database.relaxed():  # somebody else has the only connection
            unknown = await first.status()
            now += 40
            kept = await later.status()
            now += 40
            stale = await later.status()
    [problem] = unknown["problems"]
    assert (unknown["status"], unknown["parts"]["database"], problem["code"]) == ("warning", "slow", "database_slow")
    assert (before["status"], kept["status"]) == ("down", "down"), "no engine is known"
    assert (kept["queue"], kept["parts"] | {"database": "ok"}) == (before["queue"], before["parts"])
    [slow] = [problem for problem in kept["problems"] if problem["code"] == "database_slow"]
    assert "is 40 s old" in slow["message"]
    assert (stale["status"], stale["queue"]["open_batches"]) == ("warning", None)


def test_a_store_without_room_is_a_problem(tmp_path: Path) -> None:
    found = installation_status.describe([engine()], CALM, room=3_000_000)
    assert (found["status"], found["problems"][0]["code"]) == ("degraded", "store_full")
    assert "3.0 MB left" in found["problems"][0]["message"]
    assert installation_status.describe([engine()], CALM, room=1 << 30)["status"] == "ok"
    assert store.room(Settings(storage_url=tmp_path.as_uri())) == pytest.approx(
        shutil.disk_usage(tmp_path).free, rel=0.1
    )
    assert store.room(Settings(storage_url="s3://bucket")) is None


def test_an_embedded_database_without_room_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = installation_status.describe([engine()], CALM, database_room=3_000_000, room=1 << 30)
    assert (found["status"], [problem["code"] for problem in found["problems"]]) == ("degraded", ["database_full"])
    assert "3.0 MB left" in found["problems"][0]["message"]
    monkeypatch.setattr(cluster, "place", lambda _: cluster.ClusterFolders(tmp_path, tmp_path))
    assert embedded.room(Settings()) == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)
    assert embedded.room(Settings(database_url="postgresql://db/x")) is None


async def test_how_long_the_database_has_run_is_known(database: Database) -> None:
    async with database.durable() as conn:
        found = await overview.overview(conn)
    assert found.database_seconds is not None
    assert found.database_seconds > 0


def test_each_duty_is_shown_and_one_without_success_for_a_day_is_a_problem_with_its_error() -> None:
    at = datetime(2026, 11, 28, tzinfo=UTC)
    done = Standing(BY_NAME["ledger"], at, at, 1500, None, None, at, 0.0)
    stuck = Standing(BY_NAME["days"], at, None, None, at, "StorageError: s3.internal is away", at, 90_000.0)
    document = installation_status.describe([engine()], CALM, [done, stuck])
    assert [(duty["name"], duty["took_seconds"], duty["error"]) for duty in document["duties"]] == [
        ("ledger", 1.5, None),
        ("days", None, "StorageError"),
    ]
    assert document["status"] == "degraded"
    assert "s3.internal" not in json.dumps(document), "anybody may read it"
    [problem] = document["problems"]
    assert problem["code"] == "duty_stuck"
    assert problem["message"].startswith("The duty days has not succeeded for ")
    assert problem["message"].endswith("It fails: StorageError.")


OUTSIDE = {"protection": "outside", "mode": "attached"}


@pytest.mark.parametrize(
    ("told", "codes"),
    [
        (engine(), []),
        (engine(**OUTSIDE, scheduling_policy="priority"), ["no_plugin"]),
        (engine(**OUTSIDE, scheduling_policy=None), ["policy_unknown", "no_plugin"]),
        (engine(**OUTSIDE, scheduling_policy=None, problems=[WRONG | {"code": "no_page"}]), ["policy_unknown"]),
        (engine(**OUTSIDE, scheduling_policy=None, dialect="sglang"), []),
        (engine(**OUTSIDE, scheduling_policy=None, alive=False), []),
        (engine(protection="outside", mode="managed"), []),
    ],
)
def test_what_an_engine_does_not_report_and_a_missing_plug_in_are_warnings_and_never_ok(
    told: EngineInfo, codes: list[str]
) -> None:
    document = installation_status.describe([told], CALM)
    for found in (document["problems"], document["engines"][0]["problems"]):
        assert [problem["code"] for problem in found if problem["severity"] == "warning"] == codes
    if told.alive and not told.problems:
        assert document["status"] == ("warning" if codes else "ok")


def test_callers_of_whom_too_little_is_measured_are_no_warning_be_they_none_or_few_and_slowed_ones_an_error() -> None:
    def streams(requests: int, first_token: float) -> Times:
        return Times(requests, first_token, first_token, 10.0, 10.0)

    def said(beside: Times, alone: Times) -> tuple[str, list[tuple[str, str]]]:
        found = installation_status.describe([engine()], CALM, callers=Protection("m", 3600, beside, beside, alone, []))
        return found["status"], [(problem["code"], problem["severity"]) for problem in found["problems"]]

    assert said(streams(50, 100), streams(49, 100)) == ("ok", [])
    assert said(streams(3, 100), streams(0, 100)) == ("ok", [])
    assert said(streams(0, 100), streams(0, 100)) == ("ok", [])
    assert said(streams(50, 200), streams(50, 100)) == ("degraded", [("callers_slowed", "error")])
    assert said(streams(50, 100), streams(50, 100)) == ("ok", [])


async def test_the_queue_and_its_parts_are_counted(settings: Settings, database: Database) -> None:
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        pool = await engines.ensure_pool(conn, "toy")
        before = await overview.overview(conn)
        assert before == Overview(ItemCounts(0, 0, 0), 0, None, 0, steward=False, notifier=False, maintenance=False)
        await support.submit(database, tenant, pool, 40)
        worker = await support.make_worker(database, pool)
        waiting = await overview.overview(conn)
        assert (waiting.open_batches, waiting.items, waiting.workers) == (1, ItemCounts(40, 0, 0), 1)
        assert waiting.oldest_waiting_seconds is not None
        assert (before.waiting, waiting.waiting) == ({}, {"toy": ["batch"]})
        assert await support.claim(conn, pool, worker)
        leased = await overview.overview(conn)
        assert leased.items.claimed > 0
        assert leased.items.queued + leased.items.claimed == 40


async def test_a_leading_steward_a_connected_notifier_and_a_maintenance_worker_are_seen(
    settings: Settings, database: Database
) -> None:
    async with (
        leader.leadership(settings.database_url, asyncio.Event()) as lead,
        Database.of(settings, "notifier") as notifier,
        notifier.relaxed(),
        Database.of(settings, "maintenance") as maintenance,
        maintenance.relaxed(),
        database.relaxed() as conn,
    ):
        assert lead is not None
        seen = await overview.overview(conn)
    assert (seen.steward, seen.notifier, seen.maintenance) == (True, True, True)
