"""Reads the fields of one object of a definition; every error names its place and what would be right. Pure."""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from app.errors import BadInput
from app.flows import conditions, language, templates
from app.flows.conditions import Condition
from app.flows.language import LanguageError, Path
from app.flows.scopes import Scope
from app.flows.templates import Template
from app.quantities import seconds_of

MOST_PLACEHOLDERS, DEEPEST_BODY = 1000, 64


class Given:
    """One object of the definition. `place`: where it is, like `stages[1]`. `owner`: of which stage, for messages."""

    def __init__(self, value: Any, place: str, names: Sequence[str], owner: str = "") -> None:
        self._place, self._owner = place, owner
        if not isinstance(value, dict):
            raise self.bad("", f"must be an object with some of {', '.join(names)}")
        self.value: dict[str, Any] = value
        for name in value:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                mend = f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"
                raise self.bad(name[:60], f"is unknown; {mend}")

    def has(self, name: str) -> bool:
        """Whether the field has a value; null is none."""
        return self.value.get(name) is not None

    def place(self, name: str) -> str:
        """Where the field is, like `stages[1].when`."""
        return f"{self._place}.{name}" if self._place and name else self._place + name

    def bad(self, name: str, message: str, place: str = "") -> BadInput:
        """The error of a field. `place`: within the field."""
        param = (self.place(name) + place) or "pipeline"
        owner = f" of stage {self._owner!r}" if self._owner else ""
        return BadInput(f"{param}{owner} {message}", param=param)

    def inner(self, name: str, names: Sequence[str]) -> "Given":
        """The object in a field."""
        return Given(self.value[name], self.place(name), names, self._owner)

    def text(self, name: str, most: int, example: str) -> str:
        """A text that is not empty."""
        given = self.value.get(name)
        if not isinstance(given, str) or not 0 < len(given) <= most:
            raise self.bad(name, f"must be a string of 1 to {most} characters, like {example!r}")
        return given

    def choice(self, name: str, choices: Sequence[str], usual: str) -> str:
        """One of these texts."""
        given = self.value.get(name, usual)
        if given not in choices:
            raise self.bad(name, f"must be one of {', '.join(choices)}, not {str(given)[:60]!r}")
        return str(given)

    def whole(self, name: str, least: int, most: int, usual: int | None = None) -> int:
        """A whole number. Without `usual` it must be there."""
        given = self.value.get(name, usual)
        if type(given) is not int or not least <= given <= most:
            raise self.bad(name, f"must be a whole number from {least} to {most:,}, not {str(given)[:60]}")
        return given

    def number(self, name: str, most: float, usual: float | None = None) -> float:
        """A number above 0. Without `usual` it must be there."""
        given = self.value.get(name, usual)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given <= most:
            raise self.bad(name, f"must be a number above 0 and at most {most:,g}, not {str(given)[:60]}")
        return float(given)

    def seconds(self, name: str, most: float, example: str) -> float:
        """A length of time like "24h", in seconds."""
        given = self.value.get(name)
        seconds = seconds_of(given) if isinstance(given, str) else None
        if not seconds or seconds > most:
            days = f"at most {most / 86_400:g}d"
            raise self.bad(name, f"must be a length of time like {example!r}, {days}, not {str(given)[:60]!r}")
        return seconds

    def path(self, name: str, scope: Scope) -> Path:
        """A path, written without braces."""
        text = self.text(name, conditions.LONGEST, "json.topic")
        try:
            path = language.parse_path(text)
        except LanguageError as error:
            raise self._in_language(name, error) from None
        self._readable(name, path, scope)
        return path

    def condition(self, name: str, scope: Scope, usual: str) -> Condition:
        """A condition; `usual` where there is none."""
        text = self.value.get(name)
        if text is None:
            return conditions.parse(usual)
        if not isinstance(text, str):
            raise self.bad(name, 'must be a condition as a text, like "ok and json.confidence < 0.7"')
        try:
            condition = conditions.parse(text)
        except LanguageError as error:
            raise self._in_language(name, error) from None
        for path in conditions.paths(condition):
            self._readable(name, path, scope)
        return condition

    def body(self, name: str, scope: Scope) -> dict[str, Any]:
        """An object of JSON with a Template for each text that has placeholders."""
        given = self.value.get(name)
        if not isinstance(given, dict) or not given:
            raise self.bad(name, 'must be an object, like {"messages": [{"role": "user", "content": "{{item.text}}"}]}')
        compiled: dict[str, Any] = self._compiled(name, given, "", 0, scope)
        if sum(1 for _ in slots(compiled)) > MOST_PLACEHOLDERS:
            raise self.bad(name, f"has more than {MOST_PLACEHOLDERS:,} placeholders; write fewer")
        return compiled

    def _compiled(self, name: str, value: Any, place: str, depth: int, scope: Scope) -> Any:
        if depth > DEEPEST_BODY:
            raise self.bad(name, f"is nested deeper than {DEEPEST_BODY} levels")
        if isinstance(value, dict):
            if odd := next((key for key in value if "{{" in key), None):
                raise self.bad(name, f"has a placeholder in the name {odd[:60]!r}; they stand in values", place)
            return {key: self._compiled(name, each, place + _key(key), depth + 1, scope) for key, each in value.items()}
        if isinstance(value, list):
            return [self._compiled(name, each, f"{place}[{n}]", depth + 1, scope) for n, each in enumerate(value)]
        if not isinstance(value, str) or "{{" not in value:
            return value
        try:
            template = templates.parse(value, name + place)
        except LanguageError as error:
            raise self._in_language(name, error, place) from None
        for slot in template.slots:
            self._readable(name, slot.path, scope, place)
        return template

    def _in_language(self, name: str, error: LanguageError, place: str = "") -> BadInput:
        return self.bad(name, f"cannot be read at column {error.column}: {error.message}", place)

    def _readable(self, name: str, path: Path, scope: Scope, place: str = "") -> None:
        if problem := scope.problem(path):
            raise self.bad(name, f"cannot be read at column {path.column}: {problem}", place)


def _key(name: str) -> str:
    return f".{name[:60]}"


def slots(body: Any) -> Iterator[templates.Slot]:
    """The placeholders of a compiled body."""
    if isinstance(body, Template):
        yield from body.slots
    elif isinstance(body, dict):
        for each in body.values():
            yield from slots(each)
    elif isinstance(body, list):
        for each in body:
            yield from slots(each)
