"""Claims about what follows from a response, and when the next attempt is made."""

from datetime import UTC, datetime

import pytest

from app.webhooks import response_policy, retry_policy
from app.webhooks.response_policy import Answer, judge

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR = 3600


def failed(error: str, **more: object) -> Answer:
    return Answer(5, error=error, **more)  # type: ignore[arg-type]


def test_ten_attempts_over_about_75_hours() -> None:
    pauses = [retry_policy.delay(attempt, None, 0) for attempt in range(1, 11)]
    assert pauses == [5, 300, 1800, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR, None]
    assert sum(pause or 0 for pause in pauses) / HOUR == pytest.approx(75.6, abs=0.1)


@pytest.mark.parametrize(("jitter", "seconds"), [(-1, 4), (0, 5), (1, 6)])
def test_jitter_is_a_fifth_either_way(jitter: float, seconds: float) -> None:
    assert retry_policy.delay(1, None, jitter) == pytest.approx(seconds)


@pytest.mark.parametrize(("asked", "seconds"), [(None, 300), (10, 300), (1000, 1000), (7 * 24 * HOUR, 24 * HOUR)])
def test_retry_after_lengthens_a_pause_up_to_a_day(asked: float | None, seconds: float) -> None:
    assert retry_policy.delay(2, asked, 0) == seconds


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (200, None), (204, None), (299, None), (301, "http_3xx"), (304, "http_3xx"), (400, "http_4xx"),
        (410, "http_410"), (429, "http_429"), (500, "http_5xx"), (503, "http_5xx"), (100, "http_1xx"),
    ],
)  # fmt: skip
def test_only_2xx_is_success(status: int, error: str | None) -> None:
    assert response_policy.status_error(status) == error


@pytest.mark.parametrize(
    ("answer", "attempt", "verb"),
    [
        (Answer(5, 200), 1, "deliver"),
        (Answer(5, 200), 10, "deliver"),
        (failed("http_5xx"), 1, "retry"),
        (failed("http_4xx"), 9, "retry"),
        (failed("http_5xx"), 10, "give_up"),
        (failed("ssrf_blocked"), 1, "give_up"),
        (failed("secret_unreadable"), 1, "give_up"),
        (failed("http_410"), 1, "give_up"),
    ],
)
def test_an_answer_leads_to_one_transition(answer: Answer, attempt: int, verb: str) -> None:
    verdict = judge(answer, attempt, 0)
    assert verdict.verb == verb
    assert bool(verdict.disable) == (answer.error == "http_410")


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120), (" 7 ", 7), ("Sat, 21 Nov 2026 12:01:00 GMT", 60), ("Sat, 21 Nov 2026 11:00:00 GMT", 0),
        ("", None), (None, None), ("soon", None), ("-5", None), ("9" * 400, 10**12 - 1), ("²", None),
    ],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date_and_anything_else_is_ignored(
    header: str | None, seconds: float | None
) -> None:
    assert retry_policy.parse_retry_after(header, NOW) == seconds
