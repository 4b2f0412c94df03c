"""The calendar windows of a budget."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.metering.windows import HOUR, Period, window, zone

# Apia skipped a whole day, St. John's went back over midnight, Sao Paulo and Beirut skipped midnight, Havana repeated it, and
# Lord Howe's clock moves by half an hour.
ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns", "America/Sao_Paulo",
    "Asia/Beirut", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca", "Pacific/Kiritimati",
]  # fmt: skip
MICROSECOND = timedelta(microseconds=1)
RENEWED = [period for period in Period if period is not Period.TOTAL]
MOMENTS = st.datetimes(datetime(1975, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def ends(period: str, tz: str, now: str) -> tuple[datetime, datetime]:
    begin, end = window(period, tz, at(now))
    assert end is not None
    return begin, end


@given(st.sampled_from(RENEWED), st.sampled_from(ZONES), MOMENTS)
@example(Period.DAY, "Pacific/Apia", at("2011-12-30T09:59:59Z"))
@example(Period.DAY, "America/St_Johns", at("2006-10-29T03:00:00Z"))
@example(Period.HOUR, "Australia/Lord_Howe", at("2026-04-04T15:10:00Z"))
@example(Period.MONTH, "Asia/Beirut", at("2021-03-27T22:00:00.7Z"))
def test_windows_contain_their_moments_and_follow_each_other_without_gap_or_overlap(
    period: Period, tz: str, now: datetime
) -> None:
    begin, end = window(period, tz, now)
    assert end is not None
    assert begin <= now < end
    assert (begin.utcoffset(), end.utcoffset()) == (timedelta(), timedelta())
    assert window(period, tz, begin) == window(period, tz, end - MICROSECOND) == (begin, end)
    assert window(period, tz, end)[0] == end
    assert window(period, tz, begin - MICROSECOND)[1] == begin


@given(st.sampled_from(RENEWED), st.sampled_from(ZONES), MOMENTS)
def test_the_zone_in_which_the_moment_is_written_does_not_matter(period: Period, tz: str, now: datetime) -> None:
    assert window(period, tz, now) == window(period, tz, now.astimezone(zone("Asia/Tokyo")))


@given(st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC"]), MOMENTS)
def test_days_weeks_and_months_begin_at_local_midnight_where_the_clock_does_not_skip_it(tz: str, now: datetime) -> None:
    begins = {
        period: window(period, tz, now)[0].astimezone(zone(tz)) for period in (Period.DAY, Period.WEEK, Period.MONTH)
    }
    here = now.astimezone(zone(tz))
    assert all((begin.hour, begin.minute, begin.second, begin.microsecond) == (0, 0, 0, 0) for begin in begins.values())
    assert begins[Period.DAY].date() == here.date()
    assert begins[Period.WEEK].isoweekday() == 1
    assert begins[Period.WEEK].date() <= here.date() < begins[Period.WEEK].date() + timedelta(days=7)
    assert begins[Period.MONTH].date() == here.date().replace(day=1)


@given(st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "America/Havana", "Asia/Kolkata"]), MOMENTS)
def test_an_hour_has_sixty_minutes_where_clocks_move_by_whole_hours(tz: str, now: datetime) -> None:
    begin, end = window(Period.HOUR, tz, now)
    assert end is not None
    assert end - begin == HOUR
    assert begin.astimezone(zone(tz)).minute == 0


@pytest.mark.parametrize(
    ("period", "tz", "now", "begin", "end"),
    [
        ("hour", "UTC", "2026-11-22T10:30:00Z", "2026-11-22T10:00:00Z", "2026-11-22T11:00:00Z"),
        ("hour", "Asia/Kathmandu", "2026-11-22T10:30:00Z", "2026-11-22T10:15:00Z", "2026-11-22T11:15:00Z"),
        ("day", "Europe/Berlin", "2026-11-22T23:30:00Z", "2026-11-22T23:00:00Z", "2026-11-23T23:00:00Z"),
        ("day", "Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
        ("day", "Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
        ("week", "America/New_York", "2026-11-01T12:00:00Z", "2026-10-26T04:00:00Z", "2026-11-02T05:00:00Z"),
        ("month", "America/New_York", "2026-03-31T12:00:00Z", "2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z"),
        ("month", "UTC", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ("month", "UTC", "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        # midnight does not exist: the day begins at 01:00
        ("day", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"),
        # 23:30 becomes 00:30: the day begins with the jump
        ("day", "America/Toronto", "1919-03-31T04:30:00.5Z", "1919-03-31T04:30:00Z", "1919-04-01T04:00:00Z"),
        # midnight comes twice: the day begins at the first one
        ("day", "America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"),
        # the clock goes back from 00:01 to 23:01: the date is the day before once more, but the new day has begun
        ("day", "America/St_Johns", "2006-10-29T03:00:00Z", "2006-10-29T02:30:00Z", "2006-10-30T03:30:00Z"),
        # 30 December does not exist
        ("day", "Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
        ("day", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
        # 02:00 becomes 01:30
        ("hour", "Australia/Lord_Howe", "2026-04-04T14:50:00Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
        ("hour", "Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
    ],
)
def test_a_window_is_that_of_the_local_calendar(period: str, tz: str, now: str, begin: str, end: str) -> None:
    assert ends(period, tz, now) == (at(begin), at(end))


def test_an_hour_that_the_clock_repeats_is_two_windows() -> None:
    first = ends("hour", "Europe/Berlin", "2026-10-25T00:30:00Z")
    second = ends("hour", "Europe/Berlin", "2026-10-25T01:30:00Z")
    assert first == (at("2026-10-25T00:00:00Z"), at("2026-10-25T01:00:00Z"))
    assert second == (at("2026-10-25T01:00:00Z"), at("2026-10-25T02:00:00Z"))


def test_the_total_has_one_window_without_an_end() -> None:
    begin, end = window("total", "Europe/Berlin", at("2026-11-22T10:30:00Z"))
    assert end is None
    assert begin < at("2000-01-01T00:00:00Z")
    assert window("total", "UTC", at("2056-11-22T10:30:00Z")) == (begin, None)


@pytest.mark.parametrize(
    "name", ["", "Berlin", "America", "../etc/passwd", "/etc/localtime", "localtime", "right/UTC", "x" * 5000]
)
def test_an_unknown_time_zone_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ValueError, match="unknown; write a name of the IANA database, such as 'UTC'") as caught:
        window("day", name, datetime.now(UTC))
    assert len(str(caught.value)) < 250


def test_an_unknown_period_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="period 'year': unknown; write one of hour, day, week, month, total"):
        window("year", "UTC", datetime.now(UTC))


def test_a_moment_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        window("day", "UTC", datetime(2026, 11, 22))
