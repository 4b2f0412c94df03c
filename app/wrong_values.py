"""What is wrong with a value that pydantic refuses, in our words. Pure.

An error of a type that is not known here keeps pydantic's message.
"""

from collections.abc import Mapping
from typing import Any

_SHOWN = 60  # characters of a value
_WHOLE, _NUMBER, _YES_NO = "must be a whole number", "must be a number", "must be true or false"
_RULES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float", "int_parsing_size"), _WHOLE),
    **dict.fromkeys(("float_parsing", "float_type", "finite_number", "decimal_parsing", "decimal_type"), _NUMBER),
    **dict.fromkeys(("bool_parsing", "bool_type"), _YES_NO),
    **dict.fromkeys(("enum", "literal_error"), "must be {expected}"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "string_pattern_mismatch": "must match {pattern}",
}
_LENGTHS = {
    "missing": "is missing",
    "extra_forbidden": "is not a known name",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entries, not {actual_length}",
    "too_long": "must have at most {max_length} entries, not {actual_length}",
}


def wrong(error: Mapping[str, Any], *, secret: bool = False) -> str:
    """The rule that is broken, and the value unless it is `secret`: "must be a whole number, not 'abc'". `error`: pydantic's."""
    kind = error["type"]
    context = {
        name: int(of) if isinstance(of, float) and of.is_integer() else of
        for name, of in (error.get("ctx") or {}).items()
    }
    if kind in _LENGTHS:
        return _LENGTHS[kind].format(**context)
    if kind not in _RULES:
        return str(error["msg"]).removeprefix("Value error, ")
    given = error["input"]
    simple = not secret and (given is None or isinstance(given, str | int | float))
    return _RULES[kind].format(**context) + (f", not {_short(given)}" if simple else "")


def _short(given: object) -> str:
    if given is None or isinstance(given, bool):
        return {None: "null", True: "true", False: "false"}[given]
    return repr(given[:_SHOWN] + "…" if isinstance(given, str) and len(given) > _SHOWN else given)
