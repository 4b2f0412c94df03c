"""The line of static caps, and which points it dominates."""

import pytest

from benchmarks.colocation.simulator_verdict import dominated, latency_at, static_line, verdict

LINE = [(0.0, 1.0), (1000.0, 1.2), (2000.0, 3.0)]


def row(tokens, latency, **more):
    usual = {"itl_p99_x": 1.0, "itl_p50_ms": 20.0, "harvest": tokens / 2000}
    return {"batch_tok_s": tokens, "ttft_p99_x": latency, **usual, **more}


def plans(p50=90.0):
    return {"burst": {"plan_us_p50": p50, "plan_us_p99": 150.0}, "burst_long": {"itl_p50_ms": 1.0}}


def table(l2, l1):
    arms = {"sync_only": row(0, 1.0), "static_16": row(1000, 1.2), "priority": row(2000, 3.0), "l1": l1, "l2": l2}
    return {arm: {"burst": found, "burst_long": found} for arm, found in arms.items()}


@pytest.mark.parametrize(("tokens", "latency"), [(0, 1.0), (500, 1.1), (1000, 1.2), (1500, 2.1), (2000, 3.0)])
def test_between_two_caps_the_line_is_straight(tokens, latency):
    assert latency_at(LINE, tokens) == pytest.approx(latency)


def test_beyond_the_flood_there_is_no_static_cap():
    assert latency_at(LINE, 2001) is None


@pytest.mark.parametrize(
    ("point", "beaten"),
    [
        ((500, 1.05), False),
        ((500, 1.15), True),
        ((1000, 1.2), False),
        ((999, 1.21), True),
        ((1500, 2.2), True),
        ((1500, 2.0), False),
        ((2500, 9.0), False),
    ],
)
def test_a_point_is_beaten_exactly_when_the_line_has_more_tokens_at_less_latency(point, beaten):
    assert dominated(LINE, point) is beaten


def test_the_line_runs_from_no_batch_by_growing_caps_to_the_flood():
    arms = {"priority": 4, "static_128": 3, "static_16": 1, "static_32": 2, "sync_only": 0}
    found = static_line({arm: {"burst": row(n, 1.0)} for arm, n in arms.items()}, "burst")
    assert [tokens for tokens, _ in found] == [0, 1, 2, 3, 4]


def test_figures_that_keep_every_promise_hold():
    found = verdict(table(l2=row(1500, 1.05), l1=row(500, 1.05)), itl_objective_ms=25, full_engine=plans())
    assert all(line["holds"] for line in found.values())
    assert len(found) == 9


@pytest.mark.parametrize(
    ("broken", "line"),
    [
        ({"l2": row(1500, 1.11)}, "l2_ttft_p99_x"),
        ({"l2": row(1500, 1.05, itl_p99_x=1.11)}, "l2_itl_p99_x"),
        ({"l2": row(1399, 1.05)}, "l2_harvest"),
        ({"l2": row(1500, 1.05, itl_p50_ms=25.1)}, "l2_itl_p50_ms"),
        ({"l2": row(1500, 2.2)}, "no_static_cap_beats_l2"),
        ({"l1": row(1500, 1.36)}, "l1_ttft_p99_x"),
        ({"l1": row(500, 1.11)}, "l1_better_than_static_on_bursts"),
    ],
)
def test_each_broken_promise_fails_its_line(broken, line):
    figures = {"l2": row(1500, 1.05), "l1": row(500, 1.05)} | broken
    assert verdict(table(**figures), 25, plans())[line]["holds"] is False


def test_a_plan_that_takes_long_fails_where_the_engine_is_full_and_is_not_judged_where_it_never_was():
    figures = table(row(1500, 1.05), row(500, 1.05))
    assert verdict(figures, 25, plans(p50=201.0))["l2_plan_us"]["holds"] is False
    assert "l2_plan_us" not in verdict(figures, 25, {})


def test_a_flood_that_does_no_harm_fails_the_check_of_the_workload():
    harmless = table(row(1500, 1.05), row(500, 1.05))
    harmless["priority"]["burst_long"] = row(2000, 1.5)
    assert verdict(harmless, 25, {})["priority_fails_burst_long"]["holds"] is False
