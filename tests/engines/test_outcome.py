"""Claims about the outcome of each answer of an engine."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines.outcome import Done, EngineDown, Outcome, Reject, Retry, Usage, from_response

GOOD = {
    "choices": [{"message": {"content": "Paris"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}},
}


def error(message: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": "x", "code": 1}})


def test_an_answer_is_kept_verbatim_with_its_tokens() -> None:
    body = b" " + orjson.dumps(GOOD)
    assert from_response(200, body) == Done(body, Usage(9, 8, 2))


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}])
def test_without_cached_tokens_the_count_is_zero(details: object) -> None:
    body = orjson.dumps({**GOOD, "usage": {**GOOD["usage"], "prompt_tokens_details": details}})
    assert from_response(200, body) == Done(body, Usage(9, 0, 2))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, error("max_tokens is too large"), Reject(5006, "max_tokens is too large")),
        (422, b'{"detail":[{"loc":["x"]}]}', Reject(5006, '{"detail":[{"loc":["x"]}]}')),
        (413, b"", Reject(5006, "HTTP 413")),
        (429, error("slow down"), Retry("engine answered 429", 5001, busy=True, words="slow down")),
        (503, b"full", Retry("engine answered 503", 5001, busy=True, words="full")),
        (500, error("oops"), Retry("engine answered 500", words="oops")),
        (502, b"", Retry("engine answered 502")),
        (504, b"", Retry("engine answered 504", 3007)),
        (408, b"", Retry("engine answered 408", 3007)),
        (401, error("no key"), EngineDown("engine answered 401", suspect=False, words="no key")),
        (404, error("no model"), EngineDown("engine answered 404", suspect=False, words="no model")),
        (307, b"", EngineDown("engine answered 307", suspect=False)),
        (
            500,
            error("EngineCore encountered an issue. See stack trace"),
            EngineDown(
                "engine answered 500: its core died",
                suspect=True,
                words="EngineCore encountered an issue. See stack trace",
            ),
        ),
        (200, b"<html>", Retry("engine answered 200 with invalid JSON")),
        (200, b'{"choices": []}', Retry("engine answered 200 without choices")),
        (200, b'{"choices": [1]}', Retry("engine answered 200 without usage")),
        (200, b"[]", Retry("engine answered 200 without choices")),
    ],
)
def test_every_status_has_its_meaning(status: int, body: bytes, expected: Outcome) -> None:
    assert from_response(status, body) == expected


@given(st.integers(100, 599), st.binary() | st.recursive(st.none() | st.text(), st.lists).map(orjson.dumps))
def test_no_answer_is_without_a_meaning(status: int, body: bytes) -> None:
    from_response(status, body)
