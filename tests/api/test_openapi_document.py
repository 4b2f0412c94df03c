"""Claims about the OpenAPI document itself; tests/walk holds the answers against it."""

import re
from typing import Any

import jsonschema
import pytest
from fastapi.routing import APIRoute

from app.api import openapi_operations as operations
from tests.api import in_process

VERBS = re.compile(
    "Acknowledge|Add|Answer|Begin|Cancel|Check|Complete|Create|Delete|Disable|Estimate|Explain|Fetch|Get|List|Pause"
    "|Read|Replay|Retry|Rotate|Run|Search|Send|Test|Update|Upload"
)


def test_every_operation_says_what_it_does_and_every_body_has_an_example_that_fits() -> None:
    found = in_process.application().openapi()
    summaries: dict[str, set[str]] = {}
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            summary = operation["summary"]
            assert VERBS.match(summary), f"{method} {path}: {summary}; see openapi_operations.SUMMARIES"
            assert len(summary.split()) > 1
            summaries.setdefault(summary, set()).add(operations.name(method, path))
            for kind, content in operation.get("requestBody", {}).get("content", {}).items():
                if kind == "application/json":
                    schema = {**content["schema"], "components": found["components"]}
                    jsonschema.validate(content["example"], schema)
                else:
                    assert kind == "application/x-ndjson" or content["example"]
    ambiguous = {summary: names for summary, names in summaries.items() if len(names) > 1 and "batch" not in summary}
    assert {summary for summary, names in ambiguous.items() if not _other_surface(names)} == set()


def _other_surface(names: set[str]) -> bool:
    """Whether it is one thing that OpenAI's routes and ours both do."""
    return len(names) == 2 and len({name.partition(" ")[2].startswith("v1/") for name in names}) == 2


def test_requests_may_stand_in_place_of_a_file() -> None:
    schema = in_process.application().openapi()["paths"]["/v1/batches"]["post"]["requestBody"]["content"]
    wish = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    for more in ({"requests": [{}]}, {"input_file_id": "file-x"}):
        jsonschema.validate(wish | more, schema["application/json"]["schema"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wish, schema["application/json"]["schema"])


WITHOUT_BODY = ("{verb}", "retry", "redeliver", "test", "pause", "disable", "cancel")


def test_no_route_is_hidden_but_the_pages_and_what_doors_ask() -> None:
    routes = [route for route in in_process.application().routes if isinstance(route, APIRoute)]
    hidden = {route.path for route in routes if not route.include_in_schema and route.methods != {"HEAD"}}
    assert hidden == {"/", "/docs", "/internal/door/keys"}


def test_every_route_is_in_the_document_with_its_body_and_its_errors() -> None:
    found = in_process.application().openapi()
    bare = [
        f"{method} {path}"
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
        if method in ("post", "patch") and not path.endswith(WITHOUT_BODY) and "requestBody" not in operation
    ]
    assert bare == []
    assert not any("422" in op["responses"] for methods in found["paths"].values() for op in methods.values())


def _is_bounded(schema: dict[str, Any]) -> bool:
    if forms := schema.get("anyOf") or schema.get("oneOf"):
        return "enum" in schema or "pattern" in schema or all(_is_bounded(form) for form in forms)
    if schema.keys() & {"enum", "const", "format", "pattern", "maxLength"} or schema.get("type") in ("boolean", "null"):
        return True
    if schema.get("type") == "array":
        return "maxItems" in schema
    low, high = {"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}
    return schema.get("type") in ("integer", "number") and bool(schema.keys() & low) and bool(schema.keys() & high)


def test_every_parameter_of_a_path_and_of_a_query_has_a_bound() -> None:
    found = in_process.application().openapi()
    unbounded = [
        f"{method} {path}: {parameter['name']}"
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", [])
        if parameter["in"] in ("path", "query") and not _is_bounded(parameter["schema"])
    ]
    assert unbounded == []
