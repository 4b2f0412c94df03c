"""The texts in a request or an answer that people write: its string leaves, without schemas and without data in base64. Pure."""

import re
from collections.abc import Callable
from typing import Any

Change = Callable[[str, bool], str]  # a text, and whether it is JSON of its own, as the arguments of a tool call

_SCHEMAS = frozenset(("response_format", "structured_outputs", "guided_json", "guided_regex", "guided_grammar"))
_TOOLS = frozenset(("tools", "functions"))
_SCHEMAS_OF_TOOLS = frozenset(("parameters", "input_schema"))
_FORMAT = frozenset(("format",))
_ARGUMENTS = "arguments"
_DATA_URL = re.compile(r"data:[\w.+/-]*(?:;[\w.+=-]+)*;base64,[A-Za-z0-9+/=_-]*\s*", re.I)
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*\s*")


def changed(item: Any, change: Change, *, of_engine: bool = True) -> Any:
    """The same item with `change` made to each text; the same object where nothing changes. Keys stay as they are.

    `of_engine`: it is a request, whose schemas stay; else any JSON, whose fields have no meaning.
    """
    if not isinstance(item, dict) or not of_engine:
        return _changed(item, change)
    found = None
    for key, value in item.items():
        if key in _SCHEMAS and isinstance(value, dict):
            continue
        if key == "text" and isinstance(value, dict):  # of the Responses API: it has the format of the answer
            other = _changed(value, change, without=_FORMAT)
        else:
            other = _tools(value, change) if key in _TOOLS else _changed(value, change, key)
        if other is not value:
            found = {**item} if found is None else found
            found[key] = other
    return item if found is None else found


def _tools(value: Any, change: Change) -> Any:
    """The definitions of tools, without the schemas of their parameters."""
    return _changed(value, change, without=_SCHEMAS_OF_TOOLS)


def _changed(value: Any, change: Change, key: str = "", parent: str = "", without: frozenset[str] = frozenset()) -> Any:
    if isinstance(value, str):
        if not value or _is_data(value, key, parent):
            return value
        other = change(value, key == _ARGUMENTS)
        return value if other == value else other
    if isinstance(value, dict):
        found = None
        for name, each in value.items():
            if name in without and isinstance(each, dict):
                continue
            other = _changed(each, change, name, key, without)
            if other is not each:
                found = {**value} if found is None else found
                found[name] = other
        return value if found is None else found
    if isinstance(value, list):
        others = None
        for place, each in enumerate(value):
            other = _changed(each, change, key, parent, without)
            if other is not each:
                others = list(value) if others is None else others
                others[place] = other
        return value if others is None else others
    return value


def _is_data(text: str, key: str, parent: str) -> bool:
    if text.startswith(("data:", "DATA:", "Data:")):
        return _DATA_URL.fullmatch(text) is not None
    return key == "data" and parent == "input_audio" and _BASE64.fullmatch(text) is not None
