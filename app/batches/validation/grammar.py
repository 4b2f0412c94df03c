"""Limits on the JSON schemas, regular expressions and grammars that constrain an answer. Pure.

An engine compiles each of them into an automaton in its own process, while it serves other requests. One that is too large, or
repeats too often, takes minutes and gigabytes.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

SCHEMA_BYTES = 64 * 1024
SCHEMA_DEPTH = 32
REGEX_CHARACTERS = 1024
REPETITIONS = 1000  # for {n,m} in an expression, and for the counts in a schema
GRAMMAR_BYTES = 16 * 1024
CHOICES = 1000

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(\d+)(?:,(\d*))?\}|.", re.DOTALL)
_SCHEMAS = ("json", "structural_tag")
_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """The limit that a JSON schema exceeds; None: it exceeds none."""
    try:
        size = len(orjson.dumps(schema))
    except (TypeError, ValueError):
        return f"is nested deeper than {SCHEMA_DEPTH} levels"
    if size > SCHEMA_BYTES:
        return f"has {size} bytes as JSON; the limit is {SCHEMA_BYTES}"
    for name, value, depth in _entries(schema):
        if depth > SCHEMA_DEPTH:
            return f"is nested deeper than {SCHEMA_DEPTH} levels"
        if problem := _entry_problem(name, value):
            return f"{name} {problem}"
    return None


def _entry_problem(name: str, value: Any) -> str | None:
    if name in _COUNTS and isinstance(value, (int, float)) and not isinstance(value, bool) and value > REPETITIONS:
        return f"must not be above {REPETITIONS}, got {value}"
    expressions: list[str] = list(value) if name == "patternProperties" and isinstance(value, dict) else []
    if name == "pattern" and isinstance(value, str):
        expressions = [value]
    return next((problem for expression in expressions if (problem := regex_problem(expression))), None)


def regex_problem(expression: str) -> str | None:
    """The limit that a regular expression exceeds; None: it exceeds none."""
    if len(expression) > REGEX_CHARACTERS:
        return f"has {len(expression)} characters; the limit is {REGEX_CHARACTERS}"
    whole, written = _atoms(expression)
    if whole > max(REPETITIONS, written):
        return f"expands to more than {REPETITIONS} characters or classes; nested counts multiply"
    return None


def _atoms(expression: str) -> tuple[int, int]:
    """The number of characters and classes of an expression with its counts expanded, and as it is written."""
    groups, last, written = [0], 0, 0  # atoms of each open group, and atoms that a count would repeat
    for token in _TOKEN.finditer(expression):
        if token[1] is not None:
            times = int(token[2] or token[1])
            groups[-1] += last * (times - 1)
            last *= max(1, times)
        elif token[0] == "(":
            groups.append(0)
        elif token[0] == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[0] not in "^$|*+?":
            groups[-1] += 1
            last, written = 1, written + 1
    return sum(groups), written


def structured_problem(given: Any) -> str | None:
    """The problem of vLLM's `structured_outputs`: {json | regex | choice | grammar | …}; None: it is valid."""
    if not isinstance(given, dict):
        return "must be an object with one of json, regex, choice and grammar"
    regex, choices, grammar = (given.get(name) for name in ("regex", "choice", "grammar"))
    problem = next((found for name in _SCHEMAS if (found := _schema_or_text_problem(name, given.get(name)))), None)
    for expression in (regex, given.get("whitespace_pattern")):
        if isinstance(expression, str):
            problem = problem or regex_problem(expression)
    if isinstance(choices, list) and len(choices) > CHOICES:
        problem = problem or f"choice has {len(choices)} entries; the limit is {CHOICES}"
    if isinstance(grammar, str) and len(grammar.encode()) > GRAMMAR_BYTES:
        problem = problem or f"grammar has more than {GRAMMAR_BYTES} bytes"
    return problem


def _schema_or_text_problem(name: str, given: Any) -> str | None:
    """The problem of a schema that is an object, or its text."""
    if isinstance(given, str):
        if len(given.encode()) > SCHEMA_BYTES:
            return f"{name} has more than {SCHEMA_BYTES} bytes"
        try:
            given = orjson.loads(given)
        except orjson.JSONDecodeError as error:
            return f"{name} is not JSON: {error}"
    problem = schema_problem(given) if isinstance(given, dict) else None
    return problem and f"{name} {problem}"


def _entries(value: Any, depth: int = 1) -> Iterator[tuple[str, Any, int]]:
    """Every named value of a tree with its depth, to one level below the limit."""
    if depth > SCHEMA_DEPTH + 1:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name, inner, depth
            yield from _entries(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _entries(inner, depth)
