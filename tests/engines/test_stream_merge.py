"""The chunks of a stream as callers get them, and merged: equal to the answer of the same call without streaming."""

from typing import Any

import orjson
import pytest

from app.engines.answer_shape import EventReader
from app.engines.stream_merge import Chunks

HEAD = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def chunk(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": list(choices), **more}


def part(index: int = 0, finish: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}


def whole(*chunks: dict[str, Any]) -> dict[str, Any] | None:
    made, reader = Chunks(), EventReader()
    for each in chunks:
        made.take(reader.read(orjson.dumps(each))[0])
    return made.answer()


def test_texts_are_joined_and_the_usage_is_the_last_ones() -> None:
    answer = whole(
        chunk(part(role="assistant", content="")),
        chunk(part(reasoning="hm")),
        chunk(part(reasoning="m", content="he")),
        chunk(part(content="llo", finish="stop") | {"stop_reason": 7}),
        chunk(usage=USAGE),
    )
    message = {"role": "assistant", "content": "hello", "reasoning": "hmm"}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": 7}
    assert answer == {**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE}


def test_tool_calls_and_logprobs_are_put_together() -> None:
    calls = [
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 0, "function": {"arguments": '{"x"'}}],
        [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}],
        [{"index": 0, "function": {"arguments": ": 1}"}}],
    ]
    answer = whole(
        *(chunk(part(tool_calls=each, logprobs={"content": [n]})) for n, each in enumerate(calls)),
        chunk(part(finish="tool_calls")),
    )
    assert answer is not None
    [choice] = answer["choices"]
    assert choice["message"]["content"] is None
    assert choice["logprobs"] == {"content": [0, 1, 2, 3]}
    assert [(call["id"], call["function"]) for call in choice["message"]["tool_calls"]] == [
        ("a", {"name": "f", "arguments": '{"x": 1}'}),
        ("b", {"name": "g", "arguments": "{}"}),
    ]


def test_choices_are_told_apart_and_one_without_an_end_makes_no_answer() -> None:
    begun = [chunk(part(1, content="b")), chunk(part(0, content="a", finish="stop"))]
    assert whole(*begun) is None
    assert whole() is None
    answer = whole(*begun, chunk(part(1, finish="length")))
    assert answer is not None
    assert [(each["index"], each["message"]["content"]) for each in answer["choices"]] == [(0, "a"), (1, "b")]


def called(*deltas: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Id, name and arguments of each call in an answer whose chunks have these parts of calls, as callers put them together."""
    chunks = [*(chunk(part(tool_calls=each)) for each in deltas), chunk(part(finish="tool_calls"))]
    answer, reader, joined = whole(*chunks), EventReader(), list[list[Any]]()
    assert answer is not None
    for _, data, _ in [reader.read(orjson.dumps(each)) for each in chunks]:
        for piece in orjson.loads(data)["choices"][0]["delta"].get("tool_calls", ()):
            joined += [[None, "", ""]] if piece["index"] == len(joined) else []
            call, said = joined[piece["index"]], piece.get("function") or {}
            named = said.get("name") if piece.get("id") is None or piece["id"] != call[0] else None
            arguments = said.get("arguments") or ""
            text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            call[:] = [piece.get("id") or call[0], call[1] + (named or ""), call[2] + text]
    calls = answer["choices"][0]["message"]["tool_calls"]
    merged = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]
    assert [*map(tuple, joined)] == merged
    return merged


def of(name: str | None = None, arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


BOTH = [("a", "f", "{1}"), ("b", "g", "{2}")]


@pytest.mark.parametrize(
    "deltas",
    [
        pytest.param([[of("f", "{1}", id="a", index=None)], [of("g", "{2}", id="b", index=None)]], id="null as index"),
        pytest.param([[of("f", "{1}", id="a")], [of("g", "{2}", id="b")]], id="no index"),
        pytest.param([[of("f", "{1}", id="a"), of("g", "{2}", id="b")]], id="no index, in one chunk"),
        pytest.param([[of("f", "{1}", id="a", index=0)], [of("g", "{2}", id="b", index=0)]], id="the same index"),
        pytest.param([[of("f", id="a")], [of("g", id="b")], [of(None, "{1}", id="a")], [of(None, "{2}", id="b")]], id="ids"),
        pytest.param([[of("f", "{", id="a")], [of("f", "1}", id="a")], [of("g", "{2}", id="b")]], id="names again"),
        pytest.param([[of("f", "", id="a"), of("g", "", id="b")], [of(None, "{1}"), of(None, "{2}")]], id="places"),
        pytest.param([[of("f", "{", id="a")], [of(None, "1}")], [of("g", "{2}", id="b")]], id="the last call goes on"),
        pytest.param([[of("f", "{1}", id="a", index=3)], [of("g", "{2}", id="b", index=10**9)]], id="gaps"),
        pytest.param([[of("f", "{1}", id="a", index=0), of("g", "{2}", id="b", index=0)]], id="one index in one chunk"),
        pytest.param([[of("f", id="a", index=0)], [of("g", id="b", index=0)], [of(None, "{1", id="a", index=0)],
                      [of(None, "{2", id="b", index=0)], [of(None, "}", id="a", index=0)],
                      [of(None, "}", id="b", index=0)]], id="one index, and ids in turn"),
        pytest.param([[of("f", id="a", index=0)], [of("g", id="b", index=1)], [of(None, "{1}", id="a", index=1)],
                      [of(None, "{2}", id="b", index=0)]], id="indices that contradict ids"),
        pytest.param([[of("f", id="a")], [of(None, "{1}")], [of("g", id="b", index=1)], [of(None, "{2}", index=1)]],
                     id="no index but a 1"),
        pytest.param([[{"id": "a"}], [of("f")], [of(None, "{1}")], [{"id": "b"}], [of("g")], [of(None, "{2}")]],
                     id="ids, then names"),
        pytest.param([[of("f", "{", id="a")], [of(None, "1}"), of("g", "{2}", id="b")]], id="an end beside a beginning"),
        pytest.param([[of("f", index=0, id="a")], [of(None, "{", index=0, id="x")], [of(None, "1}", index=0, id="a")],
                      [of("g", "{2}", index=1, id="b")]], id="an id for each part"),
    ],
)  # fmt: skip
def test_ids_and_places_say_which_call_a_part_belongs_to(deltas: list[list[dict[str, Any]]]) -> None:
    assert called(*deltas) == BOTH


def test_calls_with_neither_ids_nor_indices_are_told_apart_by_their_names() -> None:
    assert called([of("f", "{}")], [of("g", "{}")]) == [(None, "f", "{}"), (None, "g", "{}")]
    assert called([of("f", "{}"), of("g", {"x": 1})]) == [(None, "f", "{}"), (None, "g", '{"x":1}')]
    assert called([of("f", "{}", index=0)], [of("g", "{}", index=0)]) == [(None, "f", "{}"), (None, "g", "{}")]
    assert called([of("f", "", index=0), of("g", "{}", index=0)]) == [(None, "f", ""), (None, "g", "{}")]
    assert called([of("f", "", index=0)], [of("f", "", index=0)], [of(None, "{}", index=0)]) == [(None, "f", "{}")]
    assert called([of("f", "", index=0)], [of("g", "", index=0)], [of(None, "{}", index=0)]) == [(None, "fg", "{}")]


@pytest.mark.parametrize("more", [{}, {"index": 0}, {"id": "a"}], ids=["nothing", "an index", "an id"])
def test_a_call_whose_every_part_says_its_name_is_one_call(more: dict[str, Any]) -> None:
    pieces = ['{"x": {', "}", ', "y": 1}']
    assert called(*([of("f", piece, **more)] for piece in ["", *pieces])) == [(more.get("id"), "f", "".join(pieces))]


@pytest.mark.parametrize("more", [{}, {"index": 0}])
def test_a_second_call_of_the_same_function_begins_where_the_arguments_of_the_first_are_whole(
    more: dict[str, Any],
) -> None:
    parts = [of("f", text, **more) for text in ('{"x"', ": 1}", '{"x"', ": 2}")]
    assert called(*([part] for part in parts)) == [(None, "f", '{"x": 1}'), (None, "f", '{"x": 2}')]
    assert called([of("f", "{", **more), of("f", "{", **more)])[1:] == [(None, "f", "{")]  # both in one chunk


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("chunks", "content", "calls"),
    [
        ([{"message": {"content": "hi"}, "finish_reason": "stop"}], "hi", 0),
        ([{"delta": {"content": "h"}}, {"message": {"content": "i"}, "finish_reason": "stop"}], "hi", 0),
        ([{"delta": {"content": "h"}}, {"delta": {}, "message": {"content": "hi"}, "finish_reason": "stop"}], "hi", 0),
        ([{"message": {"content": "h"}}, {"message": {"content": "h"}}, {"finish_reason": "stop"}], "hh", 0),
        ([{"message": {"content": None, "tool_calls": [CALL]}, "finish_reason": "tool_calls"}], None, 1),
        ([{"delta": {"tool_calls": [CALL]}}, {"message": {"tool_calls": [CALL]}, "finish_reason": "stop"}], None, 1),
    ],
)
def test_a_message_in_a_chunk_is_read_as_its_delta(
    chunks: list[dict[str, Any]], content: str | None, calls: int
) -> None:
    answer = whole(*map(chunk, chunks))
    assert answer is not None
    message = answer["choices"][0]["message"]
    assert (message["content"], len(message.get("tool_calls", ()))) == (content, calls)
    reader = EventReader()
    shown = [orjson.loads(reader.read(orjson.dumps(chunk(each)))[1])["choices"][0] for each in chunks]
    assert not any("message" in choice for choice in shown)


def test_calls_with_one_id_are_told_apart_by_their_indices_or_names() -> None:
    both = [("a", "f", "{1}"), ("a", "g", "{2}")]
    assert called([of("f", "{1}", id="a", index=0)], [of("g", "{2}", id="a", index=1)]) == both
    assert called([of("f", "", id="a", index=0)], [of("g", "", id="a", index=1)],
                  [of(None, "{1}", id="a", index=0)], [of(None, "{2}", id="a", index=1)]) == both  # fmt: skip
    assert called([of("f", "{1}", id="a")], [of("g", "{2}", id="a")]) == both


def test_an_event_whose_indices_are_right_goes_on_as_its_bytes() -> None:
    reader = EventReader()
    events = [
        b'{"choices": [{"index":0, "delta":{"content": "\\u00e9"}}], "n":1.10}',
        b'{"choices": [{"index":0, "delta":{"tool_calls":[{"index":0, "id":"a", "function":{"name":"f"}}]}}], "n":1.10}',
        b'{"choices": [{"index":0, "delta":{"tool_calls":[{"index":1, "id":"b", "function":{"name":"g"}}]}}], "n":1.10}',
        b'{"choices": [{"index":1, "delta":{"tool_calls":[{"index":0, "id":"c", "function":{"name":"h"}}]}}], "n":1.10}',
        b'{"choices": [{"index":0, "delta":{"tool_calls":[{"index":0, "function":{"arguments":"{}"}}]}}], "n":1E5}',
    ]
    assert [reader.read(data)[1] for data in events] == events
    wrong = b'{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b"}]}}],"n":1.10}'
    assert reader.read(wrong)[1] == wrong.replace(b'"index":0,"id"', b'"index":1,"id"').replace(b"1.10", b"1.1")


def test_calls_of_other_forms_are_kept() -> None:
    custom = [{"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": text}} for text in ("x", "y")]
    old = [{"name": "f", "arguments": "{"}, {"arguments": "}"}]
    answer = whole(
        chunk(part(tool_calls=custom[:1], function_call=old[0])),
        chunk(part(tool_calls=custom[1:], function_call=old[1], finish="tool_calls")),
    )
    assert answer is not None
    message = answer["choices"][0]["message"]
    assert message["tool_calls"] == [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "xy"}}]
    assert message["function_call"] == {"name": "f", "arguments": "{}"}


def test_content_that_comes_in_parts_stays_so_and_parts_of_a_kind_become_one() -> None:
    def text(said: str) -> dict[str, Any]:
        return {"type": "text", "text": said}

    answer = whole(
        chunk(part(content="")),
        chunk(part(content=[{"type": "thinking", "thinking": [text("h")]}])),
        chunk(part(content=[{"type": "thinking", "thinking": [text("m")]}, text("a ")])),
        chunk(part(content="tide", finish="stop")),
    )
    assert answer is not None
    expected = [{"type": "thinking", "thinking": [text("hm")]}, text("a tide")]
    assert answer["choices"][0]["message"]["content"] == expected


def test_choices_without_an_index_are_told_apart_by_their_places() -> None:
    two = [part(None, "stop", content=text) for text in "ab"]  # type: ignore[arg-type]
    answer = whole(chunk(*two))
    assert answer is not None
    assert [each["message"]["content"] for each in answer["choices"]] == ["a", "b"]
