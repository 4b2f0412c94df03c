"""The merged chunks of a stream equal the answer of the same call without streaming."""

from typing import Any

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
