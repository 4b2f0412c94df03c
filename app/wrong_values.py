"""What is wrong with a value that pydantic refuses, in our words. Pure.

An error of a type that is not known here keeps pydantic's message.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from decimal import Decimal
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_SHOWN = 60  # characters of a value
_WHOLE, _NUMBER, _YES_NO = "must be a whole number", "must be a number", "must be true or false"
_TIME = "must be a time like 2026-11-29T12:00:00Z"
_RULES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number", "decimal_parsing", "decimal_type"), _NUMBER),
    **dict.fromkeys(("bool_parsing", "bool_type"), _YES_NO),
    **dict.fromkeys(("enum", "literal_error"), "must be {expected}"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "model_attributes_type", "dataclass_type"), "must be {table}"
    ),
    **dict.fromkeys(
        ("datetime_parsing", "datetime_from_date_parsing", "datetime_object_invalid", "datetime_type"), _TIME
    ),
    **dict.fromkeys(("greater_than_equal", "greater_than", "less_than_equal", "less_than"), "must be {range}"),
    **dict.fromkeys(("string_type", "string_sub_type", "string_unicode"), "must be a string"),
    "path_type": "must be a path",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be a list"),
    "string_pattern_mismatch": "must {match}",
}
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_LENGTHS = {
    "missing": "is missing",
    "json_invalid": "is not JSON",
    "decimal_max_digits": "must have at most {max_digits} digits",
    "decimal_whole_digits": "must have at most {whole_digits} digits before the point",
    **dict.fromkeys(_UNKNOWN, "is not a known name"),
    "decimal_max_places": "must have at most {decimal_places} decimal places",
    **dict.fromkeys(("string_too_short", "string_too_long"), "must have {range} characters"),
    **dict.fromkeys(("too_short", "too_long"), "must have {range} entries, not {actual_length}"),
}
_LOW = {"ge": "at least {}", "gt": "more than {}", "min_length": "at least {}"}
_HIGH = {"le": "at most {}", "lt": "less than {}", "max_length": "at most {}"}
_NAMED = {"gt": ("ge", 1), "lt": ("le", -1)}  # of whole numbers
_BOTH = {("ge", "le"): "between {} and {}", ("min_length", "max_length"): "{} to {}"}


def wrong(
    error: Mapping[str, Any],
    *,
    secret: bool = False,
    table: str = "an object",
    pattern: str = "",
    names: Sequence[str] = (),
    of: Any = None,
) -> str:
    """The rule that is broken, and the value unless it is `secret`: "must be a whole number, not 'abc'". `error`: pydantic's.

    `table`: what the format calls an object. `pattern`: what matches the pattern, in words. `names`: those that are known. `of`:
    the type or field that the value is of, for both ends of its range (`field_at`).
    """
    kind = error["type"]
    context = {name: _plain(each) for name, each in (error.get("ctx") or {}).items()}
    context["range"] = _range(context, of)
    if kind in _LENGTHS:
        return _LENGTHS[kind].format(**context) + (_instead(str(error["loc"][-1]), names) if kind in _UNKNOWN else "")
    if kind not in _RULES:
        return str(error["msg"]).removeprefix("Value error, ")
    given = error["input"]
    simple = not secret and (given is None or isinstance(given, str | int | float | Decimal))
    context |= {"table": table, "match": f"be {pattern}" if pattern else f"match {context.get('pattern')}"}
    return _RULES[kind].format(**context) + (f", not {_short(given)}" if simple else "")


def field_at(owner: Any, place: Sequence[int | str]) -> Any:
    """The field at this place of a model or dataclass, or its type. None: it is not found."""
    found = owner
    for name in place:
        if not isinstance(name, int):
            fields = (_fields(each).get(name) for each in _within(found))
            found = next((field for field in fields if field is not None), None)
    return found


def _fields(owner: Any) -> Mapping[str, Any]:
    if isinstance(owner, type) and issubclass(owner, BaseModel):
        return owner.model_fields
    return get_type_hints(owner, include_extras=True) if isinstance(owner, type) and is_dataclass(owner) else {}


def _within(hint: Any) -> Iterator[Any]:
    """A type, and all that it is made of."""
    yield hint
    for each in (hint.annotation,) if isinstance(hint, FieldInfo) else get_args(hint):
        yield from _within(each)


def _rules(hint: Any) -> Iterator[dict[str, Any]]:
    """The bounds that belong together."""
    for each in _within(hint):
        said = each.metadata if isinstance(each, FieldInfo) else getattr(each, "__metadata__", ())
        flat = [rule for one in said for rule in (one.metadata if isinstance(one, FieldInfo) else (one,))]
        yield {name: getattr(rule, name) for rule in flat for name in (*_LOW, *_HIGH) if hasattr(rule, name)}


def _range(broken: Mapping[str, Any], of: Any) -> str:
    """Both ends of the range, if `of` says the one that is not broken."""
    ends = {name: each for name, each in broken.items() if name in _LOW or name in _HIGH}
    if not ends:
        return ""
    known = next((rules for rules in _rules(of) if ends.items() <= rules.items()), {}) | ends
    if int in _within(of):  # then the ends can be named
        known = {_NAMED.get(name, (name, 0))[0]: end + _NAMED.get(name, (name, 0))[1] for name, end in known.items()}
    low, high = (next((name for name in names if name in known), "") for names in (_LOW, _HIGH))
    if (low, high) in _BOTH:
        return _BOTH[low, high].format(_plain(known[low]), _plain(known[high]))
    return " and ".join((_LOW | _HIGH)[name].format(_plain(known[name])) for name in (low, high) if name)


def _plain(number: Any) -> Any:
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _instead(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}" if names else ""


def _short(given: object) -> str:
    if given is None or isinstance(given, bool):
        return {None: "null", True: "true", False: "false"}[given]
    if isinstance(given, Decimal):
        return str(given)
    return repr(given[:_SHOWN] + "…" if isinstance(given, str) and len(given) > _SHOWN else given)
