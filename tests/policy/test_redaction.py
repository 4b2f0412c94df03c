"""What is redacted of a request, and that restoring is exact, also over a stream that is cut anywhere."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.detection.shape import LONGEST
from app.policy.placeholders import Placeholders, StreamRestorer, TooManyValues
from app.policy.redaction import Redactor, SensitiveData, restored, restored_body
from app.policy.rules import Sensitive
from tests.sets import drawn

OWN = {"quoted": r'"[A-Z]+\\"', "bracket": r"\[x"}
TOKENIZE = Redactor(Sensitive("tokenize", {"ssn": "report"}, OWN))
WORDS = (
    "a@b.de", "john@example.com", "4111 1111 1111 1111", "+49 30 1234567", "123-45-6789", "[EMAIL_1]", "[EMAIL_", "1]", "[", "]",
    "[LITERAL_1]", "[PHONE_12345]", "[[EMAIL_1]]", '"AB\\"', "[x", " ", "\n", "é", "[EMAIL_1]@x.com", "{", "}", "_1]", "[A",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=8), max_size=12).map("".join)


def _chat(text: str, arguments: str = "{}") -> dict[str, Any]:
    call = {"type": "function", "function": {"name": "send", "arguments": arguments}}
    return {"messages": [{"role": "user", "content": text}, {"role": "assistant", "tool_calls": [call]}]}


@drawn(40, 400)
@given(TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_a_restored_request_is_the_one_that_was_redacted(text: str, arguments: dict[str, str]) -> None:
    item = _chat(text, orjson.dumps(arguments).decode())
    found = TOKENIZE.redact(item)
    assert restored(found.item, found.values, of_answer=False) == item


@drawn(40, 400)
@given(TEXTS, st.data())
def test_a_stream_that_is_cut_anywhere_is_restored_and_holds_back_less_than_a_placeholder(
    text: str, data: st.DataObject
) -> None:
    found = TOKENIZE.redact({"prompt": text})
    redacted = found.item["prompt"]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(redacted)), max_size=8)))
    restorer, whole, fed = StreamRestorer(found.values, in_json=False), "", ""
    for begin, end in zip([0, *cuts], [*cuts, len(redacted)], strict=True):
        fed += redacted[begin:end]
        whole += restorer.feed(redacted[begin:end])
        assert len(restorer._held) < LONGEST
    assert whole + restorer.finish() == text


@drawn(40, 400)
@given(st.dictionaries(TEXTS, TEXTS, max_size=3) | st.lists(TEXTS, max_size=3), st.booleans(), st.data())
def test_a_stream_of_json_that_is_cut_anywhere_is_restored_as_json(
    value: Any, indented: bool, data: st.DataObject
) -> None:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indented else 0).decode()
    found = TOKENIZE.redact({"prompt": text})
    redacted = found.item["prompt"]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(redacted)), max_size=8)))
    restorer = StreamRestorer(found.values)
    pieces = [redacted[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(redacted)], strict=True)]
    whole = "".join([*map(restorer.feed, pieces), restorer.finish()])
    assert orjson.loads(whole) == value


@pytest.mark.parametrize("value", [['A"'], {'A"': "a@b.de"}, ["a", 'A"', ["x", 'B"']]])
def test_a_pattern_that_takes_the_quotes_of_json_is_restored_as_they_were(value: Any) -> None:
    found = TOKENIZE.redact({"prompt": orjson.dumps(value).decode()})
    assert '"A' not in found.item["prompt"]
    restorer = StreamRestorer(found.values)
    assert orjson.loads("".join([*map(restorer.feed, found.item["prompt"]), restorer.finish()])) == value


@drawn(30, 300)
@given(TEXTS)
def test_redacting_again_changes_nothing_and_adds_only_new_values(text: str) -> None:
    first = TOKENIZE.redact({"prompt": text})
    again = TOKENIZE.redact(first.item, first.values)
    assert restored(again.item, again.values, of_answer=False) == {"prompt": text}
    assert {name: again.values[name] for name in first.values} == dict(first.values)


def test_equal_values_have_equal_placeholders_numbered_by_first_appearance() -> None:
    found = TOKENIZE.redact(_chat("x@a.de, y@a.de, x@a.de", '{"to": "y@a.de"}'))
    assert found.item["messages"][0]["content"] == "[EMAIL_1], [EMAIL_2], [EMAIL_1]"
    assert found.item["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"to": "[EMAIL_2]"}'


def test_an_item_without_sensitive_values_is_the_same_object() -> None:
    item = _chat("nothing here [1] [note]", '{"a": "b"}')
    found = TOKENIZE.redact(item)
    assert found.item is item
    assert not found.values


def test_keys_schemas_and_data_in_base64_stay_as_they_are() -> None:
    url = "data:image/png;base64,AAAA+4930123456789AAAA"
    schema = {"type": "object", "properties": {"mail": {"enum": ["a@b.de"]}}}
    item = {
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": schema}}],
        "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
        "metadata": {"a@b.de": "x"},
    }
    assert TOKENIZE.redact(item).item is item


def test_a_text_that_only_begins_like_a_data_url_is_redacted() -> None:
    assert TOKENIZE.redact({"prompt": "data: a@b.de"}).item == {"prompt": "data: [EMAIL_1]"}


def test_only_the_format_of_a_responses_text_stays_as_it_is() -> None:
    schema = {"type": "json_schema", "schema": {"enum": ["a@b.de"]}}
    found = TOKENIZE.redact({"input": "hi", "text": {"format": schema, "note": "a@b.de"}})
    assert found.item["text"] == {"format": schema, "note": "[EMAIL_1]"}


def test_each_kind_has_its_mode_and_hits_are_counted() -> None:
    modes = {"email": "remove", "card": "refuse", "phone": "report", "ssn": "off"}
    redactor = Redactor(Sensitive("tokenize", modes, {}))  # type: ignore[arg-type]
    found = redactor.redact({"prompt": "a@b.de +49 30 1234567 123-45-6789 AKIAIOSFODNN7EXAMPLE"})
    assert found.item == {"prompt": "[EMAIL] +49 30 1234567 123-45-6789 [SECRET_1]"}
    assert found.hits == {("email", "remove"): 1, ("phone", "report"): 1, ("secret", "tokenize"): 1}
    with pytest.raises(SensitiveData, match="card"):
        redactor.redact({"prompt": "4111 1111 1111 1111"})


def test_an_answer_is_restored_also_where_its_text_is_json() -> None:
    values = {"[NAME_1]": 'Ann "the" \\ B'}
    arguments, content = '{"to": "[NAME_1]"}', ' {"who": "[NAME_1]"}'
    message = {"content": content, "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    answer = orjson.dumps({"choices": [{"message": message}]})
    got = orjson.loads(restored_body(answer, values, of_answer=True))["choices"][0]["message"]
    assert orjson.loads(got["content"]) == {"who": values["[NAME_1]"]}
    assert orjson.loads(got["tool_calls"][0]["function"]["arguments"]) == {"to": values["[NAME_1]"]}
    restorer = StreamRestorer(values)
    streamed = "".join(restorer.feed(character) for character in content) + restorer.finish()
    assert orjson.loads(streamed) == {"who": values["[NAME_1]"]}


def test_placeholders_that_the_item_has_not_stay() -> None:
    body = b'{"text":"[EMAIL_7] and [EMAIL_1]"}'
    assert restored_body(body, {"[EMAIL_1]": "a@b.de"}, of_answer=True) == b'{"text":"[EMAIL_7] and a@b.de"}'


def test_scrubbing_is_one_way() -> None:
    assert TOKENIZE.scrubbed("no user a@b.de") == "no user [EMAIL]"


def test_more_values_than_placeholders_are_an_error() -> None:
    names = Placeholders({"[EMAIL_99999]": "a@b.de"})
    with pytest.raises(TooManyValues):
        names.of("email", "b@b.de")
