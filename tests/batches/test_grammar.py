"""Claims about schemas and grammars: an engine never gets one that takes minutes to compile."""

from typing import Any

import orjson
import pytest

from app.batches.validation.grammar import (
    CHOICES,
    REPETITIONS,
    SCHEMA_DEPTH,
    regex_problem,
    schema_problem,
    structured_problem,
)
from app.batches.validation.text_generation import ItemError, ItemRules, examine

RULES = ItemRules(context_window=1000, default_max_tokens=16)
GOOD = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 80}, "tags": {"type": "array", "maxItems": 9}},
}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def test_ordinary_schemas_and_expressions_pass() -> None:
    assert schema_problem(GOOD) is None
    assert schema_problem(nested(SCHEMA_DEPTH - 1)) is None
    assert regex_problem(r"\d{4}-\d{2}-\d{2}") is None
    assert structured_problem({"choice": ["a", "b"]}) is None


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (nested(SCHEMA_DEPTH + 1), "nested deeper"),
        (nested(5000), "nested deeper"),
        ({"enum": ["x" * 70_000]}, "bytes"),
        ({"type": "array", "maxItems": REPETITIONS + 1}, "maxItems"),
        ({"properties": {"a": {"minLength": 1e9}}}, "minLength"),
        ({"properties": {"a": {"pattern": "a{9999}"}}}, "pattern expands to"),
        ({"anyOf": [{"pattern": "a" * 2000}]}, "pattern has 2000 characters"),
        ({"patternProperties": {"^(a{99}){99}$": {}}}, "patternProperties expands to"),
    ],
)
def test_a_schema_that_is_too_large_is_refused_with_its_limit(schema: dict[str, Any], word: str) -> None:
    assert word in (schema_problem(schema) or "")


@pytest.mark.parametrize(
    "expression",
    [
        "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})",
        r"(?:[a-z]{1,20}\.){1,4}[a-z]{2,10}",
        "x" * 1024,
        r"\{9999\}[{9999}]",
    ],
)
def test_ordinary_expressions_with_counts_in_a_row_pass(expression: str) -> None:
    assert regex_problem(expression) is None


@pytest.mark.parametrize("expression", ["a{1001}", "(a{40}){40}", "a{2,5000}", "a{9999,}", "x" * 1025])
def test_an_expression_that_counts_too_far_is_refused_nested_counts_multiplied(expression: str) -> None:
    assert regex_problem(expression)


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": nested(40)}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": nested(40)}}},
            "response_format",
        ),
        ({"structured_outputs": {"regex": "a{9999}"}}, "structured_outputs"),
        (
            {"structured_outputs": {"json": orjson.dumps(nested(31) | {"maxItems": 5000}).decode()}},
            "structured_outputs",
        ),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": nested(40)}}, "structured_outputs"),
        ({"structured_outputs": {"json": {}, "whitespace_pattern": "a{9999}"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["x"] * (CHOICES + 1)}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "x" * 20_000}}, "structured_outputs"),
        ({"structured_outputs": "a"}, "structured_outputs"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": nested(40)}}]}, "tools"),
    ],
)
def test_an_item_with_one_is_refused_by_its_field(item: dict[str, Any], field: str) -> None:
    with pytest.raises(ItemError) as refused:
        examine({"prompt": "a", **item}, RULES)
    assert refused.value.field == field
