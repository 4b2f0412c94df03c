"""Claims about the verdict on callers: protected is a measured word, and every surface has the same one."""

from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest

from app import clock
from app.api.metrics import PREFIX
from app.batches import protection
from app.batches.protection import LEAST_STREAMS, LIMIT, Protection, Times, Verdict
from app.console.views import now, signs, time_range
from app.db.pool import Database
from app.metering.latency import MinuteLatencies
from tests.console.test_operations_views import an_engine
from tests.observability.support import rules

NOTHING = Times(0, None, None, None, None)
ENOUGH = LEAST_STREAMS
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def times(first: float, gap: float = 20.0, requests: int = ENOUGH) -> Times:
    return Times(requests, first, first, gap, gap)


def found(beside: Times, alone: Times) -> Protection:
    return Protection("m", 3600, beside, beside, alone, ())


@pytest.mark.parametrize(
    ("beside", "alone", "verdict", "headline"),
    [
        (times(125), times(100), Verdict.PROTECTED, "Synchronous callers are protected"),
        (times(240), times(100), Verdict.SLOWED, "Callers wait 2.4 times as long as alone"),
        (times(100, 50), times(100, 20), Verdict.SLOWED, "Callers' tokens take 2.5 times as long as alone"),
        (times(348, requests=4), NOTHING, Verdict.UNMEASURED, "4 streams beside batch work, none alone"),
        (times(100), times(100, requests=ENOUGH - 1), Verdict.UNMEASURED, "50 streams beside batch work, 49 alone"),
        (NOTHING, times(100), Verdict.UNMEASURED, "no stream beside batch work, 50 alone"),
        (NOTHING, NOTHING, Verdict.UNMEASURED, "no stream beside batch work, none alone"),
    ],
)
def test_callers_are_protected_only_where_enough_was_measured_on_both_sides(
    beside: Times, alone: Times, verdict: Verdict, headline: str
) -> None:
    given = found(beside, alone)
    assert given.verdict == verdict
    assert headline in given.headline
    assert (given.first_token_ratio is None) == (verdict == Verdict.UNMEASURED)


def test_an_answer_of_one_token_has_no_gap_and_is_compared_all_the_same() -> None:
    short = replace(times(100), gap_p50=None, gap_p95=None)
    said = "first token 100 ms beside batch work, 100 ms alone (1.00 times)"
    assert found(short, short).details == f"Of m over 60 min, at p95: {said}; 50 streams beside, 50 alone."


async def test_models_are_not_mixed_and_the_one_whose_callers_are_slowed_most_is_told_of(database: Database) -> None:
    process = MinuteLatencies(database)
    for model, beside, milliseconds in (
        ("slow", True, 400),
        ("slow", False, 390),
        ("quick", False, 20),
        ("quick", True, 60),
    ):
        for _ in range(ENOUGH):
            process.add(model, beside=beside, first_token_ms=milliseconds, gaps=[])
    await process.store()
    async with database.relaxed() as conn:
        seen = await protection.present(conn)
        of_slow = await protection.read(conn, clock.now() - protection.PRESENT, 1, "slow")
    assert (seen.model, round(seen.slowdown or 0)) == ("quick", 3)
    assert of_slow.verdict == Verdict.PROTECTED


def test_the_alert_is_the_same_measure_with_the_same_limit() -> None:
    [alert] = [rule["expr"] for rule in rules() if rule.get("alert") == "CallersSlowed"]
    assert alert.strip() == f"max(slackwater_callers_slowdown_ratio) > {LIMIT}"
    ratios = [rule["expr"] for rule in rules() if rule.get("record", "").endswith("_beside_over_alone:ratio")]
    assert [each.count(f">= {LEAST_STREAMS}") for each in ratios] == [2, 2]


async def test_status_api_and_metrics_and_console_have_one_verdict(
    client: httpx.AsyncClient, database: Database
) -> None:
    process = MinuteLatencies(database)
    for beside, milliseconds in ((True, 240.0), (False, 100.0)):
        for _ in range(ENOUGH):
            process.add("m", beside=beside, first_token_ms=milliseconds, gaps=[])
    await process.store()
    status = (await client.get("/status")).json()
    assert status["callers"]["verdict"] == "slowed"
    assert "callers_slowed" in [problem["code"] for problem in status["problems"]]
    of_api = (await client.get("/client/v4/accounts/acme/ai/protection")).json()["result"]
    assert {name: of_api[name] for name in status["callers"]} == status["callers"]
    page = (await client.get("/metrics")).text
    assert f'{PREFIX}callers{{verdict="slowed"}} 1.0' in page
    async with database.relaxed() as conn:
        seen = await protection.present(conn)
    assert f"{PREFIX}callers_slowdown_ratio {seen.slowdown}" in page
    drawn = now.Drawn(time_range.given({}, NOW, now.USUAL_RANGE), {}, seen)
    said = now.headline(now.Seen([an_engine()], 0, drawn, now.Queue(NOW, ()), (), ()))
    assert said == (signs.LOOK, status["callers"]["headline"])
