"""Whether a value fits a JSON schema (draft 2020-12). Pure: a schema reads no file and no other host.

Schemas are written by strangers. One whose references multiply would take time exponential in its size, and a recursive one time
exponential in the depth of the answer. Both are refused, and expressions are matched in linear time.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from app.optional_packages import SCHEMAS

if TYPE_CHECKING:
    import jsonschema_rs

ANY_OBJECT = b'{"type":"object"}'
MOST_OBJECTS = 2000  # in a schema, with each reference replaced by what it refers to
_DEEPEST = 100
_LONGEST_MESSAGE = 500
_MASK = "the value"  # messages quote no answer
_NO_OBJECT = f'{_MASK} is not of type "object"'
_EXPRESSION_BYTES = 1 << 20


class _Unfit(ValueError):
    """The schema is not one that can be checked."""


def schema_problem(schema: bytes) -> str | None:
    """Why this JSON is no schema that answers can be checked against; None: it is one."""
    if not SCHEMAS.installed:
        return f"{SCHEMAS.what} is not installed; {SCHEMAS.remedy}"
    import jsonschema_rs

    try:
        if _Expansion(orjson.loads(schema)).objects() > MOST_OBJECTS:
            return f"it has more than {MOST_OBJECTS:,} objects, with references followed; make it smaller"
        _validator(schema)
    except jsonschema_rs.ValidationError as error:
        return _explained(error)
    except (jsonschema_rs.ReferencingError, ValueError) as error:
        return _short(str(error))
    return None


def problem(schema: bytes, value: Any) -> str | None:
    """Why the value does not fit, with its place; None: it fits. The schema must be ANY_OBJECT, for which nothing has to be
    installed, or one without a `schema_problem`.
    """
    if schema == ANY_OBJECT:
        return None if isinstance(value, dict) else _NO_OBJECT
    try:
        error = next(_validator(schema).iter_errors(value), None)
    except ValueError as refused:  # nested too deeply
        return _short(str(refused))
    return None if error is None else _explained(error)


def _explained(error: "jsonschema_rs.ValidationError") -> str:
    place = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.instance_path)
    return _short(f"at {place.lstrip('.')}: {error.message}" if place else error.message)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> "jsonschema_rs.Draft202012Validator":
    import jsonschema_rs

    expressions = jsonschema_rs.RegexOptions(size_limit=_EXPRESSION_BYTES, dfa_size_limit=_EXPRESSION_BYTES)
    return jsonschema_rs.Draft202012Validator(
        orjson.loads(schema), pattern_options=expressions, mask=_MASK, offline=True
    )


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"


class _Expansion:
    """Counts the objects of a schema with its references followed. Each target is counted once, and then remembered."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._known: dict[str, int | None] = {}  # None: it is being counted

    def objects(self) -> int:
        """How many. Raises _Unfit for a recursive schema, and for references that are not followed here."""
        return self._target("#", 0)

    def _target(self, reference: str, depth: int) -> int:
        if reference not in self._known:
            self._known[reference] = None
            self._known[reference] = self._count(self._at(reference), depth)
        found = self._known[reference]
        if found is None:
            raise _Unfit(f"{_short(reference)} refers to itself; answers cannot be checked against a recursive schema")
        return found

    def _count(self, node: Any, depth: int) -> int:
        if depth > _DEEPEST:
            raise _Unfit(f"it is nested deeper than {_DEEPEST} levels, with references followed")
        if isinstance(node, list):
            return sum(self._count(each, depth + 1) for each in node)
        if not isinstance(node, dict):
            return 0
        if odd := next((name for name in ("$dynamicRef", "$recursiveRef") if isinstance(node.get(name), str)), None):
            raise _Unfit(f"{odd} is not supported; write $ref")
        if isinstance(node.get("$id"), str) and node is not self._schema:
            raise _Unfit("$id is not supported below the root; write references like #/$defs/name")
        reference = node.get("$ref")
        more = self._target(reference, depth + 1) if isinstance(reference, str) else 0
        return 1 + more + sum(self._count(each, depth + 1) for each in node.values())

    def _at(self, reference: str) -> Any:
        """What a reference within the schema refers to."""
        node, keys = self._schema, reference.split("/")
        if keys[0] != "#" or "%" in reference:
            raise _Unfit(f"the reference {_short(reference)} is not supported; write references like #/$defs/name")
        for key in keys[1:]:
            name = key.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            elif isinstance(node, dict) and name in node:
                node = node[name]
            else:
                raise _Unfit(f"there is nothing at {_short(reference)}")
        return node
