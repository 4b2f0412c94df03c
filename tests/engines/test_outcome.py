"""Claims about the outcome of each answer of an engine."""

import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines.answer_faults import BodyKind
from app.engines.answer_shape import NoEvent, read_event
from app.engines.outcome import (
    Done,
    Doubt,
    EngineDown,
    ErrorClass,
    Outcome,
    Reject,
    Retry,
    Usage,
    from_response,
    judged,
    unreadable,
    usage_of,
)

GOOD = {
    "choices": [{"message": {"content": "Paris"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}},
}


def error(message: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": "x", "code": 1}})


def nothing(words: str) -> Retry:
    """The outcome of an answer that has no result."""
    return Retry("engine answered 200 without choices", words=words, tries=2, kind=ErrorClass.NOT_STORED)


def misfit(words: str, place: str) -> Retry:
    """The outcome of an answer that has an unknown form at this place."""
    said = f"the engine's answer cannot be read: it has an unknown form at {place}"
    return Retry(said, words=words, tries=2, kind=ErrorClass.NOT_STORED)


@pytest.mark.parametrize(
    ("choices", "place"),
    [
        ("x", "choices"),
        ([{"index": "0"}], "choices[0].index"),
        ([{"index": 0.0}], "choices[0].index"),
        ([{}, None], "choices[1]"),
        ([{"delta": "x"}], "choices[0].delta"),
        ([{"message": []}], "choices[0].message"),
        ([{"delta": {"tool_calls": {}}}], "choices[0].delta.tool_calls"),
        ([{"delta": {"tool_calls": [{}, None]}}], "choices[0].delta.tool_calls[1]"),
        ([{"message": {"tool_calls": [{"index": "0"}]}}], "choices[0].message.tool_calls[0].index"),
        ([{"delta": {"tool_calls": [{"function": "f"}]}}], "choices[0].delta.tool_calls[0].function"),
    ],
)
def test_of_a_form_that_is_unknown_the_place_is_said(choices: object, place: str) -> None:
    said = orjson.dumps({"choices": choices})
    assert from_response(200, said) == misfit(said.decode(), place)
    with pytest.raises(NoEvent, match=f"an event of its stream has an unknown form at {re.escape(place)}$"):
        read_event(said)


def test_an_answer_is_kept_verbatim_with_its_tokens() -> None:
    body = b" " + orjson.dumps(GOOD)
    assert from_response(200, body) == Done(body, Usage(9, 8, 2))


COUNTS = {"prompt_tokens": 9, "completion_tokens": 5}


@pytest.mark.parametrize("name", ["cached_tokens", "prompt_cache_hit_tokens"])
def test_parts_that_stand_beside_the_counts_are_counted_where_no_details_have_them(name: str) -> None:
    beside = COUNTS | {name: 8, "reasoning_tokens": 3}
    assert usage_of({"usage": beside}) == Usage(9, 8, 5, {"output.reasoning_tokens": 3})
    details = {"prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 4}}
    assert usage_of({"usage": beside | details}) == Usage(9, 0, 5, {"output.reasoning_tokens": 4})
    given = {"input_tokens": 9, "output_tokens": 5, name: 8, "output_tokens_details": {"audio_tokens": 2}}
    assert usage_of({"usage": given}) == Usage(9, 8, 5, {"output.audio_tokens": 2})


def test_of_many_parts_all_are_counted_and_of_more_than_500_the_first_ones() -> None:
    details = {f"part_{n}": 1 for n in range(501)}
    found = usage_of({"usage": COUNTS | {"completion_tokens_details": details}})
    assert found is not None
    assert [*found.details] == [f"output.part_{n}" for n in range(500)]


def test_an_answer_that_cannot_be_read_is_said_to_be_so_in_plain_words() -> None:
    for error in (
        NoEvent("an event is not a JSON object"),
        ValueError("x"),
        KeyError("choices"),
        TypeError("no text: {}"),
    ):
        said = unreadable(error).message
        assert said.startswith("the engine's answer cannot be read: ")
        assert not re.search(r"Error|['{}(]", said.removeprefix("the engine's"))


@pytest.mark.parametrize("details", [None, {}, {"cached_tokens": None}])
def test_without_cached_tokens_the_count_is_zero(details: object) -> None:
    body = orjson.dumps({**GOOD, "usage": {**GOOD["usage"], "prompt_tokens_details": details}})
    assert from_response(200, body) == Done(body, Usage(9, 0, 2))


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (400, error("max_tokens is too large"), Reject(5006, "max_tokens is too large")),
        (422, b'{"detail":[{"loc":["x"]}]}', Reject(5006, '[{"loc":["x"]}]')),
        (
            422,
            b'{"detail":[{"loc":["body","messages",0,"role"],"msg":"Field required"},{"loc":["body"],"msg":"Bad"}]}',
            Reject(5006, "messages.0.role: Field required; Bad"),
        ),
        (413, b"", Reject(5006, "HTTP 413")),
        (429, error("slow down"), Retry("engine answered 429", 5001, busy=True, words="slow down")),
        (503, error("full"), Retry("engine answered 503", 5001, busy=True, words="full")),
        (503, b"no healthy upstream", Doubt(503, "no healthy upstream")),
        (503, b"", Doubt(503)),
        (429, b"<html>no", Doubt(429, "no", BodyKind.PAGE)),
        (500, error("oops"), Retry("engine answered 500", words="oops")),
        (502, error("no worker"), Retry("engine answered 502", words="no worker")),
        (504, error("late"), Retry("engine answered 504", 3007, words="late")),
        (502, b"", Doubt(502)),
        (504, b"upstream\nlate", Doubt(504, "upstream")),
        (503, b"<html><b>busy</b>", Doubt(503, "busy", BodyKind.PAGE)),
        (413, b"<html>\n<b>Too Large</b>", Reject(5006, "HTTP 413: Too Large")),
        (400, b"<html>no", Doubt(400, "no", BodyKind.PAGE)),
        (408, b"", Retry("engine answered 408", 3007)),
        (401, error("no key"), Doubt(401, "no key", BodyKind.JSON)),
        (403, b"<html><title>Forbidden</title>", Doubt(403, "Forbidden", BodyKind.PAGE)),
        (404, error("no model"), Doubt(404, "no model", BodyKind.JSON)),
        (307, b"", Doubt(307)),
        (
            500,
            error("EngineCore encountered an issue. See stack trace"),
            EngineDown(
                "engine answered 500: its core died",
                suspect=True,
                words="EngineCore encountered an issue. See stack trace",
            ),
        ),
        (200, b"<html>", Doubt(200, "", BodyKind.PAGE)),
        (200, b'{"choices": [', Doubt(200, '{"choices": [')),
        (200, b'{"error": {"message": "blocked", "code": 403}}', Doubt(403, "blocked", BodyKind.JSON)),
        (200, b'{"error": "broken"}', Retry("engine answered 500", words="broken")),
        (200, b'{"choices": []}', nothing('{"choices":[]}')),
        (200, b'{"choices": [1]}', misfit('{"choices":[1]}', "choices[0]")),
        (200, b'{"data": [1]}', nothing('{"data":[1]}')),
        (200, b"[]", nothing("[]")),
    ],
)
def test_every_status_has_its_meaning(status: int, body: bytes, expected: Outcome) -> None:
    assert from_response(status, body) == expected


@given(st.integers(100, 599), st.binary() | st.recursive(st.none() | st.text(), st.lists).map(orjson.dumps))
def test_no_answer_is_without_a_meaning(status: int, body: bytes) -> None:
    from_response(status, body)


@pytest.mark.parametrize(
    ("missing", "usage"),
    [
        ({"choices": [{"message": {"content": "Paris it is"}}]}, Usage(5, 0, 3)),
        (
            {"output": [{"type": "message", "content": [{"type": "output_text", "text": "Paris it is"}]}]},
            Usage(5, 0, 3),
        ),
        ({"data": [{"embedding": [0.5]}]}, Usage(5, 0, 0)),
    ],
)
def test_an_answer_without_usage_is_kept_with_an_estimate_and_a_mark(missing: dict[str, object], usage: Usage) -> None:
    outcome = from_response(200, orjson.dumps(missing), prompt_tokens=5)
    assert isinstance(outcome, Done)
    assert (outcome.usage, len(outcome.mended)) == (usage, 1)
    assert orjson.loads(outcome.body)["slackwater"] == {"repaired": list(outcome.mended)}
    assert from_response(200, outcome.body) == Done(outcome.body, usage), "what was mended needs no mending"


def test_a_count_that_no_row_can_hold_is_no_count() -> None:
    body = orjson.dumps({**GOOD, "usage": {"prompt_tokens": 10**12, "completion_tokens": 2}})
    assert from_response(200, body) == Done(body, Usage(0, 0, 2))


@pytest.mark.parametrize(
    ("doubt", "served", "expected"),
    [
        (Doubt(404, "Not Found", BodyKind.JSON), False, "the engine does not serve /v1/x"),
        (Doubt(404, "404 Not Found", BodyKind.PAGE), False, "the engine does not serve /v1/x"),
        (Doubt(404, "File Not Found", BodyKind.JSON), False, "the engine does not serve /v1/x (File Not Found)"),
        (Doubt(404, "no such response", BodyKind.JSON), True, "no such response"),
        (Doubt(405), False, "the engine does not serve /v1/x"),
    ],
)
def test_a_route_that_is_missing_is_the_requests_error_as_the_engine_answers_others(
    doubt: Doubt, served: bool, expected: str
) -> None:
    assert judged(doubt, "/v1/x", served=served) == Reject(5006, expected)


@pytest.mark.parametrize(
    ("doubt", "code", "begins"),
    [
        (Doubt(403, "Forbidden", BodyKind.PAGE), 5001, "HTTP 403 from something between worker and engine"),
        (Doubt(404, "Not here", BodyKind.PAGE), 5001, "HTTP 404 from something between worker and engine"),
        (Doubt(504, "late"), 3007, "HTTP 504 from something between worker and engine"),
        (Doubt(None, "connection refused"), 5001, "something between worker and engine lets no connection through"),
    ],
)
def test_what_comes_from_between_is_tried_four_times_and_shown_with_its_first_line(
    doubt: Doubt, code: int, begins: str
) -> None:
    outcome = judged(doubt, "/v1/x", served=True)
    assert isinstance(outcome, Retry)
    assert (outcome.code, outcome.tries) == (code, 4)
    assert outcome.message.startswith(begins)
    assert outcome.message.endswith(f": {doubt.words}")
    assert doubt.words not in outcome.reason, "logs do not quote it"


def test_a_count_that_is_written_with_a_point_or_as_a_text_is_one() -> None:
    usage = {"prompt_tokens": 10.0, "completion_tokens": "7", "prompt_tokens_details": {"cached_tokens": 8.0}}
    outcome = from_response(200, orjson.dumps({**GOOD, "usage": usage}))
    assert isinstance(outcome, Done)
    assert outcome.usage == Usage(10, 8, 7)
