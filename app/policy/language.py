"""The text of a policy: TOML with `[[rule]]` tables. Pure.

    [[rule]]
    id = "small-first"
    when = { task = ["extract"], est_tokens = "<=4000" }
    route = "llama-8b"

`parse` reports every error at once, each with its line, its rule and field, and what would be right.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from app import host_lists
from app.engines.catalogue import Catalogue
from app.policy import contradictions, sensitive_language
from app.policy.problems import Lines, PolicyError, Problem
from app.policy.rules import BOUNDS, KINDS, OPERATORS, TEXTS, Bound, Only, Priority, Rule, Sensitive, When
from app.quantities import seconds_of

MOST_BYTES, MOST_RULES = 256 * 1024, 500
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_BOUND = re.compile(r"\s*(<=|>=|<|>|=)\s*([0-9]+(?:\.[0-9]+)?)\s*([smhd%]?)\s*")
_CALLED = {"redact": "sensitive"}
_FIELDS = ("id", "when", "share", "observe", "contact", *contradictions.ACTIONS)
_CONDITIONS = (*TEXTS, *BOUNDS, "critical")
_HOSTS = ("webhook_hosts", "media_hosts", "tool_hosts")
_ONLY = ("models", "tools", *_HOSTS)
_LONGEST_WINDOW = 90 * 86_400.0
_LONGEST_TEXT = 500
_UNITS = {
    "est_tokens": ("", 'a number of tokens with a sign, like "<=4000"'),
    "deadline": ("smhd", 'a length of time with a sign, like "<=1h"'),
    "budget": ("%", 'a percentage with a sign, like ">=90"'),
}


def parse(text: str, models: Catalogue, *, lenient: bool = False) -> tuple[Rule, ...]:
    """The rules of a policy. Raises PolicyError. `lenient`: a model may be missing; another process may know it."""
    if len(text.encode()) > MOST_BYTES:
        raise PolicyError([Problem(1, "policy", "", f"must have at most {MOST_BYTES // 1024} KiB")])
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise PolicyError([Problem(int(line[1]) if line else 1, "policy", "", f"is not TOML: {error}")]) from None
    lines = Lines(text)
    problems = [
        Problem(lines.of(name), name, "", "is unknown; a policy has [[rule]] tables")
        for name in content
        if name != "rule"
    ]
    tables = content.get("rule", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise PolicyError(
            [*problems, Problem(lines.of("rule"), "rule", "", "must be [[rule]] tables, with two brackets")]
        )
    if len(tables) > MOST_RULES:
        problems.append(Problem(1, "policy", "", f"has {len(tables)} rules; the most is {MOST_RULES}"))
    rules, seen = [], set[str]()
    for place, table in enumerate(tables):
        reader = _Reader(place, table, lines, models, lenient=lenient)
        rules.append(reader.rule(seen))
        problems += reader.problems
    if problems:
        raise PolicyError(problems)
    return tuple(rules)


class _Reader:
    """Reads one rule and collects its problems."""

    def __init__(self, place: int, table: Mapping[str, Any], lines: Lines, models: Catalogue, *, lenient: bool) -> None:
        given = table.get("id")
        self._place, self._table, self._lines, self._models, self._lenient = place, table, lines, models, lenient
        self._name = f"rule {given}" if isinstance(given, str) and given else f"rule number {place + 1}"
        self.problems: list[Problem] = []

    def rule(self, seen: set[str]) -> Rule:
        """The rule. It is only of use without problems. `seen`: the ids so far."""
        self._known(self._table, _FIELDS, "")
        when, allow, deny = self._when(), self._only("allow"), Only()
        refuse = None
        match self._table.get("deny"):
            case dict():
                deny = self._only("deny")
            case given:
                refuse = self._refusal(given)
        rule = Rule(
            self._id(seen),
            when,
            self._chain("route"),
            self._chain("fallback"),
            self._number("share", 100.0, 0.01, 100.0, "a percentage from 0.01 to 100, like 10"),
            refuse,
            allow,
            deny,
            self._whole("max_tokens"),
            self._window(),
            self._priority(),
            self._sensitive(),
            self._flag("observe"),
            self._text("contact"),
            self._flag("encrypt"),
        )
        if not self.problems:
            for field, message in contradictions.of(rule, self._table, self._models):
                self._problem(field, message)
        return rule

    def _problem(self, field: str, message: str) -> None:
        line = self._lines.of(field.rpartition(".")[2] or "id", self._place)
        self.problems.append(Problem(line, self._name, field, message))

    def _known(self, table: Mapping[str, Any], names: Sequence[str], prefix: str) -> None:
        for name in table:
            if name in names:
                continue
            near = [_CALLED[name]] if name in _CALLED else difflib.get_close_matches(name, names, 1)
            mend = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
            self._problem(prefix + name, f"is unknown; {mend}")

    def _id(self, seen: set[str]) -> str:
        given = self._table.get("id")
        if not isinstance(given, str) or not _ID.fullmatch(given):
            form = "1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"
            self._problem("id", f"must be {form}; every rule needs one")
            return ""
        if given in seen:
            self._problem("id", "is used by an earlier rule; give every rule its own")
        seen.add(given)
        return given

    def _when(self) -> When:
        given = self._table.get("when", {})
        if not isinstance(given, dict):
            self._problem("when", 'must be a table of conditions, like { task = "extract" }')
            return When({}, {})
        self._known(given, _CONDITIONS, "when.")
        texts = {name: self._condition(name, given[name]) for name in TEXTS if name in given}
        bounds = {name: bound for name in BOUNDS if name in given and (bound := self._bound(name, given[name]))}
        critical = given.get("critical")
        if critical is not None and not isinstance(critical, bool):
            self._problem("when.critical", "must be true or false")
        return When(texts, bounds, critical)

    def _condition(self, name: str, given: Any) -> frozenset[str]:
        field = f"when.{name}"
        values = self._names(field, given)
        if name == "model":
            return frozenset(self._model(field, each) for each in values)
        if name == "kind" and (unknown := [each for each in values if each not in KINDS]):
            self._problem(field, f"{unknown[0]!r} is no kind of request; choose from {', '.join(KINDS)}")
        if name == "endpoint" and (unknown := [each for each in values if not each.startswith("/v1/")]):
            self._problem(field, f"{unknown[0]!r} is no route; write it like /v1/chat/completions")
        return frozenset(values)

    def _bound(self, name: str, given: Any) -> Bound | None:
        units, form = _UNITS[name]
        parsed = _BOUND.fullmatch(given) if isinstance(given, str) else None
        if parsed is None or (parsed[3] and parsed[3] not in units) or (units == "smhd" and not parsed[3]):
            self._problem(f"when.{name}", f"must be {form}, not {given!r}")
            return None
        assert parsed[1] in OPERATORS
        scale = {"m": 60, "h": 3600, "d": 86_400}.get(parsed[3], 1)
        return Bound(parsed[1], float(parsed[2]) * scale)

    def _names(self, field: str, given: Any) -> list[str]:
        values = given if isinstance(given, list) else [given]
        if not values or not all(isinstance(each, str) and 0 < len(each) <= _LONGEST_TEXT for each in values):
            self._problem(field, f'must be a string or a list of strings, like ["a", "b"], not {str(given)[:60]!r}')
            return []
        return values

    def _model(self, field: str, name: str) -> str:
        """The canonical name of a model."""
        model = self._models.resolve(name)
        if model is None and self._lenient:
            return name
        if model is None:
            self._problem(field, self._models.unknown(name))
            return name
        return model.name

    def _chain(self, field: str) -> tuple[str, ...] | None:
        if field not in self._table:
            return None
        return tuple(self._model(field, each) for each in self._names(field, self._table[field]))

    def _refusal(self, given: Any) -> str | None:
        if given is None:
            return None
        if given is True:
            return "denies this request"
        if isinstance(given, str) and 0 < len(given) <= _LONGEST_TEXT:
            return f"denies this request: {given.rstrip('.')}"
        self._problem("deny", 'must be true, the reason as a text, or a table like { tools = ["shell"] }')
        return None

    def _only(self, field: str) -> Only:
        given = self._table.get(field)
        if given is None:
            return Only()
        if not isinstance(given, dict) or not given:
            self._problem(field, 'must be a table of names, like { models = ["a", "b"] }')
            return Only()
        allowed = _ONLY if field == "allow" else _ONLY[:2]
        self._known(given, allowed, f"{field}.")
        names = {name: self._listed(f"{field}.{name}", given[name]) for name in allowed if name in given}
        for each in _HOSTS:
            if wrong := [host for host in names.get(each, ()) if not host_lists.is_entry(host)]:
                self._problem(f"{field}.{each}", f"{wrong[0]!r} is no host name; {host_lists.FORM}")
        models = names.get("models")
        return Only(
            None if models is None else frozenset(self._model(f"{field}.models", name) for name in models),
            None if "tools" not in names else frozenset(names["tools"]),
            *(tuple(names[each]) if each in names else None for each in _HOSTS),
        )

    def _listed(self, field: str, given: Any) -> list[str]:
        """A list of names, which may be empty: then nothing is allowed."""
        return [] if given == [] else self._names(field, given)

    def _number(self, field: str, usual: float, least: float, most: float, form: str) -> float:
        given = self._table.get(field, usual)
        if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
            self._problem(field, f"must be {form}, not {given!r}")
            return usual
        return float(given)

    def _whole(self, field: str) -> int | None:
        given = self._table.get(field)
        if given is not None and (type(given) is not int or given < 1):
            self._problem(field, f"must be a whole number of tokens from 1, not {given!r}")
            return None
        return given

    def _window(self) -> float | None:
        given = self._table.get("window")
        if given is None:
            return None
        seconds = seconds_of(given) if isinstance(given, str) else None
        if not seconds or seconds > _LONGEST_WINDOW:
            self._problem("window", f'must be a length of time like "30m", "24h" or "7d", at most 90d, not {given!r}')
            return None
        return seconds

    def _priority(self) -> Priority | None:
        given: Any = self._table.get("priority")
        if given is not None and given not in get_args(Priority):
            self._problem("priority", f"must be {', '.join(get_args(Priority))}, not {given!r}")
            return None
        found: Priority | None = given
        return found

    def _sensitive(self) -> Sensitive | None:
        given = self._table.get("sensitive")
        if given is None:
            return None
        found, problems = sensitive_language.read(given, lenient=self._lenient)
        for field, message in problems:
            self._problem(field, message)
        return found

    def _flag(self, field: str) -> bool:
        given = self._table.get(field, False)
        if not isinstance(given, bool):
            self._problem(field, "must be true or false")
        return bool(given)

    def _text(self, field: str) -> str | None:
        given = self._table.get(field)
        if given is not None and (not isinstance(given, str) or not 0 < len(given) <= _LONGEST_TEXT):
            self._problem(field, f"must be a string of at most {_LONGEST_TEXT} characters")
            return None
        return given
