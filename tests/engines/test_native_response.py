"""Claims about an engine's answer in the shapes of Workers AI, and about the text in each of them."""

from typing import Any

import orjson
import pytest

from app.engines.catalogue import Shape
from app.engines.native_response import answer_in, as_result

CHAT = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}
RESPONSE = {
    "object": "response",
    "output": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}, MESSAGE],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
}


@pytest.mark.parametrize("shape", ["native", "openai", "responses"])
@pytest.mark.parametrize("answer", [CHAT, RESPONSE])
def test_every_answer_has_a_result_in_every_shape_that_says_the_same(answer: dict[str, Any], shape: Shape) -> None:
    result = orjson.loads(as_result(orjson.dumps(answer), shape))
    assert answer_in(result) == "hi"
    assert (result == answer) is (shape != "native" or answer is RESPONSE)


def test_an_answer_that_only_calls_tools_says_nothing() -> None:
    assert answer_in({"output": [{"type": "function_call", "name": "f", "arguments": "{}"}]}) is None
    assert answer_in({"choices": [{"message": {"content": None}}]}) is None


def test_numbers_in_a_native_answer_are_those_of_the_engine() -> None:
    said = r"{\"n\":[1.10,12345678901234567890123]}"
    answer = f'{{"choices":[{{"message":{{"content":"{said}"}}}}],"usage":{{"prompt_tokens":1,"odd":1.10}}}}'.encode()
    plain = said.replace("\\", "").encode()
    assert as_result(answer, "native", wants_json=True) == (
        b'{"response":' + plain + b',"usage":{"prompt_tokens":1,"odd":1.10}}'
    )


def test_an_answer_without_text_has_an_empty_response() -> None:
    for content in (None, ""):
        answer = orjson.dumps({"choices": [{"message": {"content": content}}]})
        assert orjson.loads(as_result(answer, "native")) == {"response": ""}


def test_a_mended_answer_says_so_in_every_shape_and_a_call_without_a_function_is_no_error() -> None:
    mark = {"repaired": ["no usage: tokens are estimated"]}
    message = {"role": "assistant", "content": "hi", "tool_calls": [{"id": "x"}]}
    answer = orjson.dumps({"choices": [{"index": 0, "message": message}], "slackwater": mark})
    assert orjson.loads(as_result(answer, "openai"))["slackwater"] == mark
    native = orjson.loads(as_result(answer, "native"))
    assert (native["slackwater"], native["response"]) == (mark, "hi")
    assert native["tool_calls"] == [{"name": None, "arguments": ""}]
