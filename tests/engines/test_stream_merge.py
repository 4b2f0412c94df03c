"""The merged chunks of a stream equal the answer of the same call without streaming."""

from typing import Any

import pytest

from app.engines.stream_merge import Chunks

HEAD = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def chunk(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": list(choices), **more}


def part(index: int = 0, finish: str | None = None, logprobs: Any = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}


def whole(*chunks: dict[str, Any]) -> dict[str, Any] | None:
    made = Chunks()
    for each in chunks:
        made.take(each)
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
    """Id, name and arguments of each call in an answer whose chunks have these parts of calls."""
    answer = whole(*(chunk(part(tool_calls=each)) for each in deltas), chunk(part(finish="tool_calls")))
    assert answer is not None
    calls = answer["choices"][0]["message"]["tool_calls"]
    return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]


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
    ],
)  # fmt: skip
def test_ids_and_places_say_which_call_a_part_belongs_to(deltas: list[list[dict[str, Any]]]) -> None:
    assert called(*deltas) == BOTH


def test_calls_with_neither_ids_nor_indices_are_told_apart_by_their_names() -> None:
    assert called([of("f", "{}")], [of("g", "{}")]) == [(None, "f", "{}"), (None, "g", "{}")]
    assert called([of("f", "{}"), of("g", {"x": 1})]) == [(None, "f", "{}"), (None, "g", '{"x":1}')]


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
