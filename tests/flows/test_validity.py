"""Claims about answers that are checked against the JSON schema of their stage."""

import sys

import orjson
import pytest

from app import optional_packages
from app.engines.requests import RESPONSES
from app.flows import rendering, validity
from app.flows.language import MISSING
from tests.flows.pipelines import FORMAT, chat, flow, lineage, stage


@pytest.mark.parametrize(
    ("text", "valid", "message"),
    [
        ('{"sure": 0.5}', True, None),
        ('{"sure": 2}', False, "at sure: the value is greater than the maximum of 1"),
        ("{}", False, '"sure" is a required property'),
        ("no JSON", False, "the answer is not JSON"),
        ("[" * 300 + "]" * 300, False, ""),
    ],
)
def test_an_answer_is_valid_if_it_fits_the_schema(text: str, valid: bool, message: str | None) -> None:
    tree = flow(stage("a", body=chat("Q", response_format=FORMAT)))
    answer = lineage(tree, text).answers[1]
    assert answer.valid is valid
    assert answer.error is MISSING if message is None else message in answer.error["message"]


@pytest.mark.parametrize(("text", "valid"), [('{"any": 1}', True), ("[1]", False), ("3", False), ("no JSON", False)])
def test_any_object_is_valid_where_one_is_asked_for_and_no_package_is_needed_to_see_it(
    monkeypatch: pytest.MonkeyPatch, text: str, valid: bool
) -> None:
    validity._validator.cache_clear()
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    monkeypatch.setattr(optional_packages, "find_spec", lambda _: None)
    tree = flow(stage("a", body=chat("Q", response_format={"type": "json_object"}), reask=1))
    assert lineage(tree, text).answers[1].valid is valid


def test_a_schema_of_the_responses_api_is_checked_too() -> None:
    form = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "array"}}}
    tree = flow(stage("a", endpoint=RESPONSES, body={"input": "Q", "text": form}))
    said = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "{}"}]}], "status": "completed"}
    answer = rendering.answer_of(tree, 1, ok=True, body=orjson.dumps(said))
    assert answer.text == "{}"
    assert not answer.valid


def test_an_expression_of_a_schema_takes_linear_time_and_a_message_quotes_no_answer() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "string", "pattern": "^(a+)+$"}}}
    tree = flow(stage("a", body=chat("Q", response_format=form)))
    answer = lineage(tree, '"' + "a" * 50_000 + '!"').answers[1]
    assert not answer.valid
    assert "aaa" not in answer.error["message"]
