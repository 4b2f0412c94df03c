"""Claims about the queue and the time of the page Now, without a database."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from app.access.roles import Role, Viewer
from app.batches.protection import Protection, Stretch, Times
from app.batches.queue_outlook import ModelQueue, PoolRow, WaitingRow, queues
from app.console import nav, page
from app.console.views import engines, now, now_plots, now_queue, time_range
from app.console.views.plots import Reading, Series
from app.errors import BadInput
from app.headroom.samples import StoredSample
from tests.console.test_operations_views import an_engine
from tests.headroom.test_samples import SAMPLE

NOW = datetime(2026, 11, 23, 14, 16, 2, tzinfo=UTC)
OPERATOR = Viewer(1, "ada", Role.OPERATOR, None, None, NOW, NOW)
HOURS = timedelta(hours=1)


def waiting(tenant: int, tokens: float, model: str = "m", weight: float = 1.0, **more: object) -> WaitingRow:
    usual = {"held": False, "hours": None, "batches": 1}
    return WaitingRow(tenant_id=tenant, weight=weight, model=model, tokens=tokens, **usual | more)  # type: ignore[arg-type]


def pool(pace: float | None, engines: int = 1, spread: float | None = None) -> PoolRow:
    return PoolRow("m", pace, spread, None if pace else 240.0, engines)


def seen(seconds_ago: float) -> now.Seen:
    sample = StoredSample(NOW - timedelta(seconds=seconds_ago), replace(SAMPLE, batch_tokens=100, seconds=10.0))
    none = Times(0, None, None, None, None)
    calls = Protection("m", 3600, none, none, none, [])
    drawn = now.Drawn(time_range.given({}, NOW, now.USUAL_RANGE), {1: [sample]}, calls)
    return now.Seen([], 0, drawn, now.Queue(NOW, []), [], [])


@pytest.mark.parametrize(("seconds_ago", "value"), [(5, "10"), (300, "–")])
def test_the_pace_of_the_harvest_is_the_newest_one_and_not_an_old_one(seconds_ago: float, value: str) -> None:
    assert {each.name: each.value for each in now.figures(seen(seconds_ago), OPERATOR, NOW)}["Harvest"] == value


def test_an_account_is_told_that_the_harvest_is_of_all_accounts() -> None:
    whole, own = (now.view(seen(5), who, {}, NOW)["figures"] for who in (OPERATOR, replace(OPERATOR, tenant_id=1)))
    assert [str(each.words).count("of all accounts") for each in (*whole, *own)] == [0] * 5 + [0, 0, 1, 0, 1]


def test_without_a_stream_the_first_token_says_that_no_stream_was_there() -> None:
    words = str(now.figures(seen(5), OPERATOR, NOW)[0].words)
    assert "no synchronous stream counted in this time; one of the last 20 s may not be yet" in words
    assert now.no_stream(live=False) == "no synchronous stream counted in this time"


def test_harvested_means_the_results_of_spend_and_what_workers_reported_says_so() -> None:
    reported = now.figures(seen(5), OPERATOR, NOW)[4]
    assert (reported.name, engines.AS_REPORTED in str(reported.words)) == ("Tokens for batches", True)


@pytest.mark.parametrize(("changes", "said"), [({}, True), ({"state": "down"}, False)])
def test_what_callers_wait_is_said_below_a_headline_of_callers_only(changes: dict[str, str], said: bool) -> None:
    shown = now.view(replace(seen(5), engines=[an_engine(**changes)]), OPERATOR, {}, NOW)
    assert (shown["title"] == "No engine answers") != said
    assert shown["strong"].startswith("It takes") == said
    assert (shown["engines"][0]["harvest"] == "10") == said


def test_of_a_silent_worker_now_shows_nothing_that_it_said_last() -> None:
    lost = an_engine(alive=False, signal="quiet_seconds", value=420.0, silent_seconds=180.0)
    shown = now.view(replace(seen(5), engines=[lost]), OPERATOR, {}, NOW)
    assert shown["title"] == "No engine has a worker"
    assert shown["engines"][0]["words"] == "has no worker: the last report of one was 3 min ago"
    assert "caller for" not in shown["rest"]
    late = an_engine(reason="open", overdue=True, silent_seconds=8.0)
    assert now.view(replace(seen(5), engines=[late]), OPERATOR, {}, NOW)["engines"][0]["words"].endswith(
        "last report 8 s ago"
    )


async def test_the_rail_beside_a_page_counts_the_engines_that_the_page_has_read() -> None:
    class Older:
        async def at(self, *_: object) -> dict[str, nav.Badge | None]:
            return nav.engines(0, 1)

    shown = now.view(replace(seen(5), engines=[an_engine()]), OPERATOR, {}, NOW)
    parts = SimpleNamespace(looks=Older(), reader=None)
    entries = [entry for group in await page.rail(parts, OPERATOR, "", shown) for entry in group]  # type: ignore[arg-type]
    assert next(entry.badge for entry in entries if entry.path == engines.PATH) is None


def test_what_is_broken_comes_before_what_callers_wait() -> None:
    away = {"code": "steward_away", "message": "No steward leads.", "remedy": "Start one.", "severity": "error"}
    late = away | {"code": "worker_silent", "severity": "warning"}
    titles = [
        now.view(replace(seen(5), engines=[an_engine()], problems=problems), OPERATOR, {}, NOW)["title"]
        for problems in ([], [late], [away, late], [away, away])
    ]
    unmeasured = "Protection is not measured yet: no stream beside batch work, none alone"
    assert titles == [unmeasured, unmeasured, "One problem", "Two problems"]


def test_a_problem_that_is_the_headline_is_said_once_with_what_ends_it() -> None:
    away = {"code": "no_engine", "message": "No engine has a worker.", "remedy": "Start one.", "severity": "error"}
    shown = now.view(replace(seen(5), problems=[away]), OPERATOR, {}, NOW)
    assert (shown["title"], shown["strong"], shown["problems"]) == ("No engine has a worker", "Start one.", [])


@pytest.mark.parametrize(("callers", "tokens", "value"), [(0.1, 0, "–"), (0.0, 0, "0"), (2.0, 50, "5")])
def test_tokens_of_callers_that_are_not_counted_yet_are_not_known(callers: float, tokens: int, value: str) -> None:
    [told] = seen(5).history[1]
    counted = replace(told, sample=replace(told.sample, sync=callers, sync_tokens=tokens))
    shown = replace(seen(5), engines=[an_engine()], drawn=replace(seen(5).drawn, history={1: [counted]}))
    assert now.view(shown, OPERATOR, {}, NOW)["engines"][0]["sync"] == value


# ------------------------------------------------------------ the queue by model


def test_the_whole_queue_ends_after_what_can_run_at_the_measured_pace() -> None:
    rows = [waiting(1, 3000), waiting(2, 1000), waiting(2, 5000, held=True)]
    [found] = queues(rows, [pool(100)], None)
    assert (found.tokens, found.held, found.able, found.batches, found.seconds) == (9000, 5000, 4000, 3, 40)


def test_an_account_waits_for_the_fair_share_of_the_others_and_not_for_more() -> None:
    rows = [waiting(1, 1000), waiting(2, 10_000, weight=3), waiting(3, 200), waiting(3, 9000, held=True)]
    [found] = queues(rows, [pool(100)], 1)
    assert found.tokens == 1000
    assert found.seconds == (1000 + 3000 + 200) / 100


def test_deadlines_count_what_can_run_and_those_of_an_hour_are_of_the_day_too() -> None:
    rows = [waiting(1, 10, hours=1), waiting(1, 20, hours=24), waiting(1, 40), waiting(1, 80, hours=1, held=True)]
    assert queues(rows, [pool(1)], None)[0].urgent == (10, 30)


@pytest.mark.parametrize("given", [pool(None), pool(100, engines=0)])
def test_without_a_pace_or_an_engine_there_is_no_end(given: PoolRow) -> None:
    [found] = queues([waiting(1, 10)], [given], None)
    assert found.seconds is None
    shown = now_queue.view([found], NOW)
    assert shown["forecast"] is None
    assert shown["queue"][0]["done"] == ("no engine" if not given.engines else "not known")
    assert shown["queue"][0]["late"]


def a_queue(tokens: float = 6000, seconds: float | None = 3600, **more: object) -> ModelQueue:
    usual: dict[str, object] = {
        "batches": 2,
        "held": 0.0,
        "urgent": (0.0, 0.0),
        "engines": 1,
        "pace": 1.0,
        "spread": 0.2,
    }
    return ModelQueue(model="m", tokens=tokens, seconds=seconds, **usual | more)  # type: ignore[arg-type]


def test_the_forecast_falls_from_what_can_run_to_nothing_at_its_end() -> None:
    drawn = now_queue.forecast([a_queue(6000, 3600), a_queue(3000, 1800, held=3000.0)], NOW)
    assert drawn.reading is not None
    left = dict(zip(drawn.reading.at, drawn.reading.series[0].values, strict=True))
    assert left[NOW] == 6000
    assert left[NOW + HOURS] == 0
    assert left[NOW + HOURS * 0.8] == pytest.approx(1200)
    assert not drawn.reading.zooms
    assert [word.text for word in drawn.words] == ["6k can run now", "done at 15:16", "15:04 to 15:28"]


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ([a_queue(6000, None, pace=None)], "the pace of m was not measured in the last hour"),
        (
            [a_queue(6000, None, pace=0.0, still=240.0)],
            "no item of m has ended in the last 4 min, so its pace is not known",
        ),
        ([a_queue(6000, None, engines=0)], "no engine serves m now"),
        ([a_queue(6000, None, held=6000.0)], "nothing of it can run"),
    ],
)
def test_without_a_forecast_it_says_why(queue: list[ModelQueue], said: str) -> None:
    assert now_queue.view(queue, NOW)["no_forecast"] == said


def test_a_queue_says_what_is_held_and_when_the_rest_is_done() -> None:
    [row] = now_queue.view([a_queue(6000, held=2000.0, urgent=(500.0, 4000.0))], NOW)["queue"]
    assert (row["tokens"], row["sub"], row["hour"], row["day"], row["done"]) == (
        "6k", "2 batches; 2k held", "500", "4k", "15:16",
    )  # fmt: skip
    [held] = now_queue.view([a_queue(6000, held=6000.0)], NOW)["queue"]
    assert (held["sub"], held["done"], held["late"]) == ("2 batches; all held", "once released", False)


# ------------------------------------------------------------ the time that plots show


def shown(**given: str) -> time_range.TimeRange:
    return time_range.given({name.rstrip("_"): value for name, value in given.items()}, NOW, "1h")


def test_a_preset_ends_now_and_a_part_of_the_past_where_it_was_asked_for() -> None:
    assert (shown().start, shown().end, shown().ends) == (NOW - HOURS, NOW, "now")
    assert shown(range="6h").length == 6 * HOURS
    assert shown(range="moon").name == "1h"
    past = shown(from_="2026-11-23T13:00:00Z", to="2026-11-23T13:05:00Z")
    assert (past.live, past.until, past.words) == (False, past.end, "13:00:00 to 13:05:00")
    assert past.key != shown(from_="2026-11-23T13:00:00Z", to="2026-11-23T13:06:00Z").key


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2026-11-23T14:00:00Z", "2026-11-23T14:00:01Z", 60),  # a minute at least
        ("2026-11-23T14:00:00Z", "2027-01-01T00:00:00Z", 962),  # nothing of the future
        ("1970-01-01T00:00:00Z", "2026-11-23T14:00:00Z", 35 * 86_400),  # samples are kept so long
        ("2026-11-23T15:00:00Z", "2026-11-23T16:00:00Z", 3600),  # not begun yet: the usual time
        ("2026-11-23T14:00:00Z", "2026-11-23T13:00:00Z", 3600),  # backwards: the usual time
    ],
)
def test_a_time_that_cannot_be_shown_becomes_one_that_can(start: str, end: str, seconds: int) -> None:
    assert shown(from_=start, to=end).length.total_seconds() == seconds


def test_a_time_that_is_none_is_named() -> None:
    with pytest.raises(BadInput, match="from: must be a time such as"):
        shown(from_="yesterday", to="2026-11-23T13:00:00Z")


def test_the_part_that_is_shown_stands_behind_the_presets() -> None:
    past = shown(from_="2026-11-22T23:00:00Z", to="2026-11-23T13:05:00Z")
    [*presets, last] = time_range.choices("/p", past, "1h")
    assert [each["here"] for each in presets] == [False] * 5
    assert (last["name"], last["here"]) == ("22 Nov 23:00 to 23 Nov 13:05", True)
    assert last["href"] == "/p?from=2026-11-22T23%3A00%3A00Z&to=2026-11-23T13%3A05%3A00Z"
    assert presets[1]["href"] == "/p"


# ------------------------------------------------------------ what a plot says


def test_a_reading_has_its_seconds_and_short_numbers() -> None:
    at = [NOW, NOW + timedelta(seconds=10)]
    reading = Reading(
        NOW, NOW + HOURS, at, [Series("step", "ms", [12.345, None], "sync"), Series("n", "", [1234.6, 2.0])]
    )
    assert json.loads(reading.data) == [[0, 10], [["step", "ms", "sync", [12.3, None]], ["n", "", "", [1235, 2]]]]
    assert reading.frame[1] - reading.frame[0] == 3600


# ------------------------------------------------------------ how long callers waited


def test_the_plot_of_first_tokens_has_the_baseline_of_the_number_above_it() -> None:
    beside, alone, nothing = (Times(60, each, each, None, None) for each in (348.0, 142.0, None))
    calls = Protection("m", 3600, beside, beside, alone, [Stretch(NOW - HOURS, beside, nothing)])
    drawn = now_plots.latency(calls, "first_token_p95", NOW - 2 * HOURS, NOW)
    assert [word.text for word in drawn.words] == ["limit 178 ms", "alone, 7 days: 142 ms", "beside batch 348"]
    [line], [end] = drawn.caps, [word.y for word in drawn.words if word.x == 100]
    assert (100 - line) / (100 - end) == pytest.approx(142 / 348, rel=0.01)
    assert calls.first_token_ratio == pytest.approx(348 / 142)


@pytest.mark.parametrize(
    ("first", "title"), [(124, "Synchronous callers are protected"), (126, "Callers wait 1.3 times")]
)
def test_headline_number_and_plot_judge_by_one_limit_and_say_one_time(first: float, title: str) -> None:
    beside, alone = Times(60, first, first, 1.1, 1.1), Times(60, 100.0, 100.0, 1.1, 1.1)
    calls = Protection("m", 3600, beside, beside, alone, [Stretch(NOW - HOURS, beside, alone)])
    drawn = replace(seen(5).drawn, calls=calls)
    shown = now.view(replace(seen(5), engines=[an_engine()], drawn=drawn), OPERATOR, {}, NOW)
    number, gap = shown["figures"][:2]
    [end] = [word.y for word in shown["first_token"].words if "beside" in word.text]
    assert shown["title"].startswith(title)
    assert (number.words[0].colour == "warn", end < shown["first_token"].limits[0]) == (first > 125, first > 125)
    assert f"first token {number.value} ms beside" in shown["strong"]
    assert f"between tokens {gap.value} ms beside" in shown["strong"]


def test_a_baseline_of_few_is_said_to_be_one() -> None:
    beside, alone = Times(60, 348.0, 348.0, None, None), Times(3, 142.0, 142.0, None, None)
    calls = Protection("m", 3600, beside, beside, alone, [Stretch(NOW - HOURS, beside, alone)])
    drawn = now_plots.latency(calls, "first_token_p95", NOW - 2 * HOURS, NOW)
    assert "alone, of few: 142 ms" in [word.text for word in drawn.words]


def test_a_first_token_of_few_streams_is_said_to_be_of_so_many() -> None:
    everything, beside, alone = (Times(n, 348.0, 348.0, None, None) for n in (264, 3, 261))
    drawn = replace(seen(5).drawn, calls=Protection("m", 3600, everything, beside, alone, []))
    shown = now.view(replace(seen(5), drawn=drawn), OPERATOR, {}, NOW)
    assert shown["figures"][0].words[0].text == "of 3 streams beside batch work in the last 1 h; 348 ms alone, of 261"
    assert shown["requests"] == "264 streams, 3 beside batch"


def test_without_a_sample_the_harvest_is_not_known() -> None:
    unseen = replace(seen(5), drawn=replace(seen(5).drawn, history={}))
    assert [(each.value, each.unit) for each in now.figures(unseen, OPERATOR, NOW)][4] == ("–", "")


def test_without_a_baseline_no_line_of_it_is_drawn() -> None:
    beside, nothing = Times(60, 348.0, 348.0, None, None), Times(0, None, None, None, None)
    calls = Protection("m", 3600, beside, beside, nothing, [Stretch(NOW - HOURS, beside, nothing)])
    drawn = now_plots.latency(calls, "first_token_p95", NOW - 2 * HOURS, NOW)
    assert (list(drawn.caps), [word.text for word in drawn.words]) == ([], ["beside batch 348"])
