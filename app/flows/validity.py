"""Whether a value fits a JSON schema. Pure: a schema reads no file and no other host, and its expressions take linear time."""

from functools import lru_cache
from typing import Any

import jsonschema_rs
import orjson

ANY_OBJECT = b'{"type":"object"}'
_LONGEST_MESSAGE = 500
_MASK = "the value"  # messages quote no answer
_EXPRESSIONS = jsonschema_rs.RegexOptions(size_limit=1 << 20, dfa_size_limit=1 << 20)
_SCHEMA_ERRORS = (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, TypeError)


def schema_problem(schema: bytes) -> str | None:
    """Why this JSON is no schema that can be checked; None: it is one."""
    try:
        _validator(schema)
    except _SCHEMA_ERRORS as error:
        return _short(str(getattr(error, "message", error)))
    return None


def problem(schema: bytes, value: Any) -> str | None:
    """Why the value does not fit, with its place; None: it fits. The schema must be one that can be checked."""
    try:
        error = next(_validator(schema).iter_errors(value), None)
    except ValueError as refused:  # nested too deeply
        return _short(str(refused))
    if error is None:
        return None
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.instance_path)
    return _short(f"at {place.lstrip('.')}: {error.message}" if place else error.message)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Any:
    return jsonschema_rs.validator_for(orjson.loads(schema), pattern_options=_EXPRESSIONS, mask=_MASK, offline=True)


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
