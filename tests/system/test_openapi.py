"""The OpenAPI document describes what the API does: fuzzed by it, nothing breaks and no answer is undescribed."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from unittest import SkipTest

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.app import create_app
from app.settings import Settings
from tests.system.stack import ACCOUNT, MODEL, Stack, running, wait_for
from tests.timing import note

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 12
ANSWERS: Counter[tuple[str, int]] = Counter()  # by what was sent and the status


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A whole installation with a ready engine."""
    with running() as stack:
        wait_for(lambda: stack.query("select from engine where state = 'ready'"), what="the engine ready")
        yield stack
    note("fuzzed: " + ", ".join(f"{mode} {status} x {n}" for (mode, status), n in sorted(ANSWERS.items())))


def document() -> dict[str, Any]:
    """The document, with our own account and model where any would be refused at the door."""
    found = create_app(Settings()).openapi()
    known = {"account_id": ACCOUNT, "model": MODEL, "name": MODEL}
    for methods in found["paths"].values():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["name"] in known:
                    parameter["schema"] = {"const": known[parameter["name"]]}
    for name in ("model", "model_name"):
        _fix(found, name, MODEL)
    return found


def _fix(value: Any, name: str, known: str) -> None:
    """Every property of this name may only be what is known."""
    if isinstance(value, list):
        for each in value:
            _fix(each, name, known)
    elif isinstance(value, dict):
        properties = value.get("properties")
        if isinstance(properties, dict) and name in properties:
            properties[name] = {"const": known}
        for each in value.values():
            _fix(each, name, known)


DOCUMENT = schemathesis.openapi.from_dict(document())
OPERATIONS = [result.ok() for result in DOCUMENT.get_all_operations()]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "not allowed"])
def test_whatever_is_sent_is_answered_as_the_document_says(stack: Stack, operation: Any, mode: GenerationMode) -> None:
    headers = {"authorization": stack.client.headers["authorization"]}
    base = str(stack.client.base_url).rstrip("/")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        response = case.call_and_validate(base_url=base, headers=headers, checks=CHECKS, timeout=60)
        ANSWERS[mode.value, response.status_code] += 1

    with suppress(SkipTest, Unsatisfiable):  # where everything is allowed
        fuzz()


WITHOUT_BODY = ("{verb}", "retry", "redeliver", "test", "pause", "cancel")


def test_every_route_is_in_the_document_with_its_body_and_its_errors() -> None:
    found = create_app(Settings()).openapi()
    bare = [
        f"{method} {path}"
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
        if method in ("post", "patch") and not path.endswith(WITHOUT_BODY) and "requestBody" not in operation
    ]
    assert bare == []
    assert not any("422" in op["responses"] for methods in found["paths"].values() for op in methods.values())
