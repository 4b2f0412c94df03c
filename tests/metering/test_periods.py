"""Claims about the names of periods."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from app.metering import periods, windows

NOW = datetime(2026, 11, 18, 14, 30, 5, tzinfo=UTC)  # a Wednesday


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def days(text: str) -> tuple[str, str]:
    found = periods.parse(text, NOW)
    assert {moment.time().isoformat() for moment in found} == {"00:00:00"}
    return found.since.date().isoformat(), found.until.date().isoformat()


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("today", "2026-11-18", "2026-11-19"),
        ("yesterday", "2026-11-17", "2026-11-18"),
        ("this-week", "2026-11-16", "2026-11-23"),
        ("last-week", "2026-11-09", "2026-11-16"),
        ("this-month", "2026-11-01", "2026-12-01"),
        ("last-month", "2026-10-01", "2026-11-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        ("2024-02", "2024-02-01", "2024-03-01"),
        ("2026-11-03", "2026-11-03", "2026-11-04"),
        ("2026-11-01..2026-11-07", "2026-11-01", "2026-11-08"),
    ],
)
def test_a_period_has_whole_days_and_both_its_ends(text: str, since: str, until: str) -> None:
    assert days(text) == (since, until)


def test_days_are_those_of_the_time_zone_also_where_the_clock_is_put_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert periods.parse("2026-10", NOW, berlin) == (at("2026-09-30T22:00Z"), at("2026-10-31T23:00Z"))
    late = at("2026-11-18T23:30Z")  # in Berlin it is Thursday already
    assert periods.parse("today", late, berlin) == (at("2026-11-18T23:00Z"), at("2026-11-19T23:00Z"))
    assert periods.parse("2026-10-25..2026-10-25", NOW, berlin) == (at("2026-10-24T22:00Z"), at("2026-10-25T23:00Z"))


def test_a_month_in_a_zone_is_the_window_of_a_budget_there() -> None:
    for zone in ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"):
        period = periods.parse("this-month", NOW, ZoneInfo(zone))
        assert tuple(period) == windows.window("month", zone, NOW)


def test_a_length_of_time_ends_now_and_begins_with_its_hour() -> None:
    assert periods.parse("90m", NOW) == (NOW.replace(hour=13, minute=0, second=0), NOW)


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13", "2026-02-30", "2026-11-01..", "..2026-11-01", "2026-1-1", "0d", "9999-12-31"]
)
def test_what_is_no_period_is_refused_with_the_forms_that_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a period: write a day \(2026-11-03\).*last-week"):
        periods.parse(text, NOW)


def test_a_period_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        periods.parse("2026-11-07..2026-11-01", NOW)
