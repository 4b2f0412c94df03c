"""The OpenAPI document describes the API: requests generated from it cause no error, and every answer is described."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any
from unittest import SkipTest

import jsonschema
import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from app.api import openapi_operations as operations
from app.api.app import create_app
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, is_ok, wait_for
from tests.system.fuzzing import quietly
from tests.system.stack import ACCOUNT, MODEL, Stack, running
from tests.system.unsayable import is_known
from tests.timing import note

EXAMPLES = 12
ANSWERS: Counter[tuple[str, int]] = Counter()  # by what was sent and the status
WALKS = 30
WALKED: Counter[tuple[str, int]] = Counter()  # by operation and status
QUIETLY = quietly(EXAMPLES)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A whole installation with a ready engine."""
    with running() as stack:
        wait_for(lambda: stack.query("select from engine where state = 'ready'"), "the engine ready")
        yield stack
    note("fuzzed: " + ", ".join(f"{mode} {status} x {n}" for (mode, status), n in sorted(ANSWERS.items())))


def document() -> dict[str, Any]:
    """The document, with our own account and model where any would be refused at the door."""
    found = deepcopy(create_app(Settings()).openapi())
    known = {"account_id": ACCOUNT, "model": MODEL, "name": MODEL}
    for path, methods in found["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] in ("path", "query") and parameter["name"] in known and _is_one(path, parameter):
                    parameter["schema"] = {"const": known[parameter["name"]]}
    _fix(found, "model", {"const": MODEL})
    _fix(found, "model_name", {"enum": [MODEL, "*", "", None]})
    _fix(found, "url", {"const": "http://127.0.0.1:9/hook"})
    return found


def _is_one(path: str, parameter: dict[str, Any]) -> bool:
    """Whether it names one thing, and is no filter of a listing."""
    return parameter["in"] == "path" or path.endswith("/schema")


def _fix(value: Any, name: str, known: dict[str, Any]) -> None:
    """Every property of this name may only be what is known."""
    if isinstance(value, list):
        for each in value:
            _fix(each, name, known)
    elif isinstance(value, dict):
        properties = value.get("properties")
        if isinstance(properties, dict) and name in properties:
            properties[name] = dict(known)
        for each in value.values():
            _fix(each, name, known)


DOCUMENT = schemathesis.openapi.from_dict(document())
DOCUMENT.config.generation.with_security_parameters = False  # each case is sent with a good key
ALIASES = "/ai/v1/"  # the same routes as those under /v1
OPERATIONS = [
    pytest.param(operation, id=operation.label, marks=[pytest.mark.slow] if ALIASES in operation.path else [])
    for operation in (result.ok() for result in DOCUMENT.get_all_operations())
]
ONCE = schemathesis.openapi.from_dict(document()).exclude(path_regex=ALIASES)
ONCE.config.phases.fuzzing.enabled = False
ALLOWED = schemathesis.openapi.from_dict(document()).exclude(
    path_regex=f"{ALIASES}|^/admin/"
)  # no key opens the latter
ALLOWED.config.generation.modes = [GenerationMode.POSITIVE]  # a case that is not allowed ends a walk
ALLOWED.config.generation.with_security_parameters = False


@DOCUMENT.hook
@ONCE.hook
@ALLOWED.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    return not is_known(failure, case, response)


def send(stack: Stack, case: Any) -> None:
    """Send a case, and see to it that all checks of schemathesis are content with the answer."""
    headers = {"Authorization": stack.client.headers["authorization"]}
    response = case.call_and_validate(
        base_url=str(stack.client.base_url).rstrip("/"), headers=headers, timeout=LIMIT_SECONDS
    )
    ANSWERS[case.meta.generation.mode.value, response.status_code] += 1


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["allowed", "not allowed"])
def test_whatever_is_sent_is_answered_as_the_document_says(stack: Stack, operation: Any, mode: GenerationMode) -> None:
    fuzz = QUIETLY(given(case=operation.as_strategy(generation_mode=mode))(lambda case: send(stack, case)))
    with suppress(SkipTest, Unsatisfiable):  # where everything is allowed
        fuzz()


def test_what_the_example_of_a_create_makes_is_there_until_it_is_deleted(stack: Stack) -> None:
    found = create_app(Settings()).openapi()["paths"]
    deletes = set()
    for path, methods in found.items():
        links = methods.get("post", {}).get("responses", {}).get("200", {}).get("links", {})
        if ALIASES in path:
            continue
        made = _by_example(stack, path, methods["post"]["requestBody"]["content"]) if links else {}
        for there, operations_there in found.items():
            link = links.get(operations_there.get("get", {}).get("operationId"))
            if not link or not there.endswith("}") or {*re.findall(r"{(\w+)}", there)} != link["parameters"].keys():
                continue
            [(name, pointer)] = [(name, each) for name, each in link["parameters"].items() if "#" in each]
            value: Any = made
            for step in pointer.partition("#/")[2].split("/"):
                value = value[step]
            url = there.format(**{"account_id": ACCOUNT, name: value})
            assert stack.client.get(url).status_code == 200, url
            wait_for(
                lambda url=url: stack.client.delete(url), f"{url} deleted, which a running one is not", until=is_ok
            )
            gone = 200 if "contents" in operations_there["delete"]["summary"] else 404
            assert stack.client.get(url).status_code == gone, url
            deletes.add(there)
    assert deletes >= {"/v1/files/{file_id}", "/v1/responses/{response_id}", "/v1/batches/{batch_id}"}


def _by_example(stack: Stack, path: str, content: dict[str, Any]) -> Any:
    """The answer to the example of the body, on this installation."""
    url = path.format(account_id=ACCOUNT, model=MODEL)
    if "multipart/form-data" in content:
        example = content["multipart/form-data"]["example"]
        line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions"}
        line["body"] = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}  # type: ignore[assignment]
        file = {"file": (example["file"].removeprefix("@"), json.dumps(line))}
        answer = stack.client.post(url, data={"purpose": example["purpose"]}, files=file)
    else:
        example = json.dumps(content["application/json"]["example"]).replace(
            "https://example.com/", "http://127.0.0.1:9/"
        )
        query = {"queueRequest": "true"} if "/ai/run" in path else {}
        answer = stack.client.post(url, params=query, content=example, headers={"content-type": "application/json"})
    assert answer.status_code == 200, (url, answer.text)
    return answer.json()


def test_no_walk_along_the_links_meets_an_answer_that_the_document_does_not_say(stack: Stack) -> None:
    to = {"base_url": str(stack.client.base_url).rstrip("/"), "timeout": 60}
    headers = {"Authorization": stack.client.headers["authorization"]}

    class Walk(ALLOWED.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return {**to, "headers": headers}

        def validate_response(self, response: Any, case: Any, additional_checks: Any = None, **kwargs: Any) -> None:
            case.validate_response(response, headers=headers, transport_kwargs=kwargs, recorder=self.recorder)
            WALKED[case.operation.label, response.status_code] += 1

    Walk.run(settings=settings(QUIETLY, max_examples=WALKS, stateful_step_count=6))
    assert any(status == 200 for _, status in WALKED)


@pytest.mark.filterwarnings("ignore:Skipped test cases with unsupported payload media types")  # NDJSON
@ONCE.parametrize()
@QUIETLY
def test_every_bound_is_where_the_document_says(case: Any, stack: Stack) -> None:
    send(stack, case)


VERBS = re.compile(
    "Acknowledge|Add|Answer|Begin|Cancel|Check|Complete|Create|Delete|Disable|Estimate|Explain|Fetch|Get|List|Pause"
    "|Read|Replay|Retry|Rotate|Run|Search|Send|Test|Update|Upload"
)


def test_every_operation_says_what_it_does_and_every_body_has_an_example_that_fits() -> None:
    found = create_app(Settings()).openapi()
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
    schema = create_app(Settings()).openapi()["paths"]["/v1/batches"]["post"]["requestBody"]["content"]
    wish = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    for more in ({"requests": [{}]}, {"input_file_id": "file-x"}):
        jsonschema.validate(wish | more, schema["application/json"]["schema"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wish, schema["application/json"]["schema"])


WITHOUT_BODY = ("{verb}", "retry", "redeliver", "test", "pause", "disable", "cancel")


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
    found = create_app(Settings()).openapi()
    unbounded = [
        f"{method} {path}: {parameter['name']}"
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", [])
        if parameter["in"] in ("path", "query") and not _is_bounded(parameter["schema"])
    ]
    assert unbounded == []
