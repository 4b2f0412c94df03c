"""Requests generated from the OpenAPI document: they name what one account has, and can be said of what another one has."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from itertools import islice
from typing import Any
from unittest import SkipTest

import orjson
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import Failure, FailureGroup
from schemathesis.specs.openapi.checks import ignored_auth

from app.api.workers_ai.events import MOST_WAIT_SECONDS
from tests.api import in_process
from tests.api.support import MODEL
from tests.sets import examples
from tests.walk.operations import POLICY, SPARE, Operation, takes_any_text, value
from tests.walk.unsayable import is_known

# Of an operation: allowed requests at the bounds that the document names, and as many beyond them.
BOUNDS = examples(1, 100_000)
BOUNDS_OF_ALIAS = examples(1, 12)  # which is another path to an operation
DRAWN = examples(1, 12)  # requests that it allows
DRAWN_WRONG = examples(0, 12)  # requests that it does not allow, which take a hundred times as long to find
# Properties of which other values would be refused at the door, or would reach others.
_KNOWN: Mapping[str, Any] = {
    "model": {"const": MODEL},
    "model_name": {"enum": [MODEL, "*", "", None]},
    "url": {"const": "http://127.0.0.1:9/hook"},
}
_ADMINISTERED: Mapping[str, Any] = {"account": {"enum": [SPARE, "a-new-one"]}, "policy": {"enum": ["", POLICY]}}


@schemathesis.serializer("application/x-ndjson")
def _lines(context: Any, value: Any) -> dict[str, Any]:
    """A text as it is, anything else as one line."""
    return {
        "data": value if isinstance(value, bytes) else value.encode() if isinstance(value, str) else orjson.dumps(value)
    }


class Cases:
    """Requests about what `ids` name, by the name of a path's parameter. `named`: ids that stand wherever a text may."""

    def __init__(self, ids: Mapping[str, str], named: Collection[str]) -> None:
        found = deepcopy(in_process.application().openapi())
        _each_property(found, lambda name, schema: _known(name, schema) or _offered(schema, named))
        for path, methods in found["paths"].items():
            for operation in methods.values():
                for parameter in operation.get("parameters", []):
                    if "schema" in parameter:
                        parameter["schema"] = _parameter(path, parameter, ids, named)
                if path.startswith("/admin/"):
                    _each_property(operation, _ADMINISTERED.get)
        self._ids = ids
        self.document = schemathesis.openapi.from_dict(found)
        self.document.config.generation.with_security_parameters = False  # each case is sent with a good key
        self.document.hook(filter_failure)

    @cached_property
    def _operations(self) -> Mapping[str, Any]:
        found = (each.ok() for each in self.document.get_all_operations())
        return {each.label: each for each in found}

    def of(self, operation: Operation) -> Iterator[Any]:
        """Some, the same in every run: at the bounds that the document names, others that it allows, and that it does not."""
        found = self._operations[operation.label]
        for mode, count in ((GenerationMode.POSITIVE, DRAWN), (GenerationMode.NEGATIVE, DRAWN_WRONG)):
            at_bounds = self.document.iter_coverage_cases(
                found,
                generation_modes=[mode],
                generation_config=self.document.config.generation_for(operation=found),
                extra_data_source=None,
                error_feedback=None,
            )
            alias = operation.subject == "aliases"
            most = BOUNDS_OF_ALIAS if alias else BOUNDS
            bounds = list(islice(at_bounds, 10 * most))
            yield from bounds[:: max(1, len(bounds) // most)][:most]
            if bounds and not alias:  # it takes long to find none
                yield from drawn(found, mode, count)

    def answered(self, operation: Operation, response: Any) -> list[str]:
        """What of the answer to the document's example is not as the document says."""
        return problems(self._operations[operation.label].Case(path_parameters=dict(self._ids)), response)


def problems(case: Any, response: Any, *excluded: Any) -> list[str]:
    """What of an answer is not as the document says. That nobody enters without a key is tested for itself."""
    try:
        case.validate_response(
            response, headers=dict(response.request.headers), excluded_checks=[ignored_auth, *excluded]
        )
    except FailureGroup as failures:
        return [str(each) for each in failures.exceptions]
    except Failure as failure:
        return [str(failure)]
    return []


def sent(case: Any, token: str) -> dict[str, Any]:
    """A case as arguments of `requests`. Nobody waits for events that do not come."""
    found: dict[str, Any] = case.as_transport_kwargs("", {"Authorization": f"Bearer {token}"})
    wait = str((found.get("params") or {}).get("wait", ""))
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", wait) and 0 < float(wait) <= MOST_WAIT_SECONDS:
        found["params"]["wait"] = 0.01
    return found


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Arguments of a request, or a text, with other names in place of these."""
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
        return value
    if isinstance(value, bytes):
        for old, new in names.items():
            value = value.replace(old.encode(), new.encode())
        return value
    if isinstance(value, dict):
        return {renamed(key, names): renamed(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(renamed(each, names) for each in value)
    return value


def drawn(operation: Any, mode: GenerationMode, count: int) -> list[Any]:
    """So many requests that Hypothesis draws."""
    found: list[Any] = []
    quietly = settings(
        max_examples=max(count, 1),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def keep(case: Any) -> None:
        found.append(case)

    with suppress(SkipTest, Unsatisfiable):  # where everything is allowed
        if count:
            quietly(given(case=operation.as_strategy(generation_mode=mode))(keep))()
    return found


def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether a failed check of schemathesis counts."""
    return not is_known(failure, case, response)


def _each_property(value: Any, change: Callable[[str, Any], Any]) -> None:
    """Give every property of every schema below the schema that `change` makes of its name and its schema."""
    for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _each_property(each, change)
    if isinstance(value, dict) and isinstance(value.get("properties"), dict):
        for name, schema in value["properties"].items():
            value["properties"][name] = change(name, schema)


def _known(name: str, schema: Any) -> Any:
    """The schema of a property whose values are known, also null where it may be. None: they are not."""
    if name not in _KNOWN:
        return None
    null = {"type": "null"}
    return {"anyOf": [dict(_KNOWN[name]), null]} if null in schema.get("anyOf", ()) else dict(_KNOWN[name])


def _offered(schema: Any, ids: Collection[str]) -> Any:
    """The schema; where it lets any text through, the text may also be one of these ids that fit."""
    fits = [
        each
        for each in ids
        if takes_any_text(schema)
        and schema.get("type") == "string"
        and len(each) <= schema.get("maxLength", len(each))
        and re.search(schema.get("pattern", ""), each)
    ]
    return {"anyOf": [{"enum": sorted(fits)}, schema]} if fits else schema


def _parameter(path: str, parameter: Mapping[str, Any], ids: Mapping[str, str], named: Collection[str]) -> Any:
    """The schema of a parameter: what the account has, or any text that may be one of its ids."""
    name, schema = parameter["name"], parameter["schema"]
    if parameter["in"] == "path" and name in ids:
        return {"const": value(path, name, ids)}
    if parameter["in"] == "query" and name in ("model", "name") and path.endswith("/schema"):
        return {"const": MODEL}
    return _offered(schema, named) if parameter["in"] == "query" else schema
