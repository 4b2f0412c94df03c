"""Complete answers that are malformed."""

import orjson
import pytest

from app.engines import mending


@pytest.mark.parametrize(
    ("body", "value", "marks"),
    [
        (b'{"a": "ok"}', {"a": "ok"}, 0),
        (b'{"a": "half \\ud83d"}', {"a": "half \N{REPLACEMENT CHARACTER}"}, 1),
        (b'{"a": "\\ud83d\\ude00 \\ude00"}', {"a": "\N{GRINNING FACE} \N{REPLACEMENT CHARACTER}"}, 1),
        (b'{"a": [NaN, -Infinity, 1.5]}', {"a": [None, None, 1.5]}, 1),
        (b'\xef\xbb\xbf{"a": "b\x01"}', {"a": "b\x01"}, 1),
        (b'{"a": "\xff", "b": Infinity}', {"a": "\N{REPLACEMENT CHARACTER}", "b": None}, 2),
    ],
)
def test_what_is_no_json_is_replaced_and_said(body: bytes, value: object, marks: int) -> None:
    found, mended = mending.read(body)
    assert (found, len(mended)) == (value, marks)
    orjson.dumps(found)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices": [', b'{"a": 1} x', b"[" * 100_000])
def test_what_is_not_complete_is_not_mended(body: bytes) -> None:
    with pytest.raises(ValueError):
        mending.read(body)


def test_tokens_are_estimated_for_every_kind_of_answer() -> None:
    chat = {"choices": [{"message": {"content": "a tide of", "tool_calls": [{"function": {"arguments": "{}"}}]}}]}
    assert mending.estimated_usage(chat, 7) == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    response = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "a tide of"}]}]}
    assert mending.estimated_usage(response, 7) == {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    assert mending.estimated_usage({"data": [{"embedding": [1.0]}]}, 7) == {"prompt_tokens": 7, "total_tokens": 7}
