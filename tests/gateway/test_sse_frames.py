"""Claims about parsing and formatting event streams."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines.event_stream import EventSplitter
from app.errors import ExecutionFailed
from app.gateway.sse_frames import SseEvent, failed, native, openai, run_openai, run_responses


def event(**body: object) -> SseEvent:
    return SseEvent(orjson.dumps(body), dict(body))


@given(st.lists(st.text("abc: {}\u00e9", min_size=1)), st.data())
def test_the_same_events_come_out_however_the_bytes_are_cut(texts: list[str], data: st.DataObject) -> None:
    payloads = [orjson.dumps({"t": text}) for text in texts]
    stream = b"".join(b": comment\n\ndata: " + payload + b"\r\n\n" for payload in payloads)
    splitter, found = EventSplitter(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == payloads


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_an_event_may_have_several_lines_or_lack_its_end(end: str, last: str) -> None:
    lines = ['data: {"a":', "data: [1,", "data:{}", "data: ]}", "", 'data:{"b":1}', 'data: {"c":1}', "data", "data:"]
    splitter = EventSplitter()
    found = splitter.feed((end.join([*lines, f'data: {{"d":1}}{last}']) + end).encode()) + splitter.end()
    assert [orjson.loads(data) for data in found] == [{"a": [1, {}]}, {"b": 1}, {"c": 1}, {"d": 1}]


@pytest.mark.parametrize(
    ("delta", "carries"),
    [
        ({"role": "assistant", "content": ""}, False),
        ({}, False),
        ({"content": "x"}, True),
        ({"reasoning": "x"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
    ],
)
def test_only_output_counts_as_a_token(delta: dict[str, object], carries: bool) -> None:
    assert event(choices=[{"index": 0, "delta": delta}]).carries_tokens is carries


def test_a_text_completion_counts_by_its_text() -> None:
    assert event(choices=[{"index": 0, "text": "x"}]).carries_tokens
    assert not event(choices=[{"index": 0, "text": "", "finish_reason": "stop"}]).carries_tokens


def test_tool_calls_and_the_end_have_native_frames_of_their_own() -> None:
    calls = [{"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    frames = native(event(choices=[{"delta": {"content": "a", "tool_calls": calls}, "finish_reason": "tool_calls"}]))
    said = [orjson.loads(line[6:]) for line in frames.split(b"\n\n") if line]
    assert said == [{"response": "a"}, {"tool_calls": calls}, {"finish_reason": "tool_calls"}]


def test_the_error_that_ends_a_stream_has_the_form_of_the_errors_of_its_api() -> None:
    error = failed(ExecutionFailed("x"))
    envelope = ExecutionFailed("x").content(openai=False)
    for of_run in (native, run_openai, run_responses):
        [*_, data] = of_run(error).strip().split(b"data: ")
        assert orjson.loads(data) == envelope
    assert openai(error, usage=True) == b"data: " + error.data + b"\n\n"
    assert "error" in orjson.loads(error.data)


def test_usage_beside_the_end_of_an_answer_has_a_native_frame() -> None:
    parts = [
        event(choices=[{"delta": {"content": "a"}, "finish_reason": end}], usage={"prompt_tokens": 1})
        for end in (None, "stop")
    ]
    said = [orjson.loads(line[6:]) for part in parts for line in native(part).split(b"\n\n") if line]
    assert said[-1] == {"response": "", "usage": {"prompt_tokens": 1}}
    assert said[:-1] == [{"response": "a"}, {"response": "a"}, {"finish_reason": "stop"}]


def test_usage_beside_choices_stays_where_it_is() -> None:
    both = event(choices=[{"delta": {"content": "a"}}], usage={"prompt_tokens": 1})
    assert openai(both, usage=False) == b"data: " + both.data + b"\n\n"
    assert openai(event(choices=[], usage={"prompt_tokens": 1}), usage=False) == b""
