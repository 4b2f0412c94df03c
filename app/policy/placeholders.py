"""Replaces sensitive values by placeholders such as `[EMAIL_1]`, and restores them. Pure.

Placeholders are numbered within an item, by first appearance: equal values get equal placeholders, and equal prefixes of prompts
stay equal. Text that looks like a placeholder is replaced by one, too, so that restoring is exact:
`restored(redacted(text)) == text`.
"""

import re
from collections.abc import Mapping

import orjson

from app.detection.detectors import LITERAL
from app.detection.shape import LONGEST, SHAPE

MOST_VALUES = 99_999  # of one kind in an item
_BEGUN = re.compile(r"\[(?:[A-Z][A-Z0-9_]{0,17})?\Z")  # the end of a text, which may go on as a placeholder
_JSON_BEGINS = re.compile(r"\s*(?:\{|\[\s*[\"\[{\]0-9tfn-])")

_QUOTES = re.compile(r'\\(?:.|\Z)|"', re.DOTALL)  # strings of JSON begin and end here, but not at what is escaped
_UNDECIDED = re.compile(r"\s*(?:\[\s*)?")  # a beginning that may go on as JSON or not, and has no placeholder


class TooManyValues(ValueError):
    """An item has more sensitive values than there are placeholders."""


class Placeholders:
    """The placeholders of one item. `values`: by placeholder, what it stands for; those known already keep theirs. New ones are
    numbered above `above`.
    """

    def __init__(self, values: Mapping[str, str] | None = None, above: int = 0) -> None:
        self._above = above
        self.values: dict[str, str] = dict(values or {})
        self._known = {(_kind(name), value): name for name, value in self.values.items()}
        self._given = frozenset(self.values)
        self._counts: dict[str, int] = {}
        for name in self.values:
            kind, number = _kind(name), int(name[1:-1].rpartition("_")[2])
            self._counts[kind] = max(number, self._counts.get(kind, 0))

    def of(self, kind: str, value: str) -> str:
        """The placeholder of a value. Raises TooManyValues."""
        kind = kind.upper()
        if (known := self._known.get((kind, value))) is not None:
            return known
        number = max(self._counts.get(kind, 0), self._above) + 1
        if number > MOST_VALUES:
            raise TooManyValues(f"more than {MOST_VALUES} values of the kind {kind.lower()}")
        name = f"[{kind}_{number}]"
        self._counts[kind], self._known[kind, value], self.values[name] = number, name, value
        return name

    def of_other(self, text: str, values: Mapping[str, str]) -> str:
        """The placeholder of one that stands for what it has in `values`, or that only looks like one."""
        value = values.get(text)
        return self.of(LITERAL, text) if value is None else self.of(_kind(text), value)

    def of_literal(self, text: str) -> str:
        """The placeholder of a text that looks like one. One that was known from the beginning stands for itself."""
        return text if text in self._given else self.of(LITERAL, text)


def restored_text(text: str, values: Mapping[str, str], *, in_json: bool = False) -> str:
    """The text with the values of its placeholders. `in_json`: it is JSON itself, so values are escaped."""
    if "[" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        known = values.get(found[0])
        if known is None:
            return found[0]
        return orjson.dumps(known).decode()[1:-1] if in_json else known

    return SHAPE.sub(value, text)


def is_json(text: str) -> bool:
    """Whether a text is a JSON object or list."""
    if not _JSON_BEGINS.match(text):
        return False
    try:
        return isinstance(orjson.loads(text), dict | list)
    except orjson.JSONDecodeError:
        return False


class StreamRestorer:
    """Restores a text that arrives in pieces. It holds back at most `LONGEST` - 1 characters, those that may begin a placeholder.

    `in_json`: the text is JSON, as the arguments of a tool call; None: it is if it begins so. Within the strings of JSON values
    are escaped. Beside them they stay as they are: an own pattern may have taken the quotes of a string as part of its value.
    """

    def __init__(self, values: Mapping[str, str], *, in_json: bool | None = None) -> None:
        self._values = values
        self._in_json = in_json
        self._in_string = False
        self._held = self._begin = self._backslash = ""

    def feed(self, piece: str) -> str:
        """The restored text up to where a placeholder may have begun."""
        text = self._held + piece
        opened = text.rfind("[", max(0, len(text) - LONGEST + 1))
        cut = opened if opened >= 0 and _BEGUN.match(text, opened) else len(text)
        self._held = text[cut:]
        return self._restored(text[:cut])

    def finish(self) -> str:
        """What was held back: the text ends here."""
        text, self._held = self._held, ""
        return self._restored(text)

    def _restored(self, text: str) -> str:
        if self._in_json is None:
            self._begin += text
            if _UNDECIDED.fullmatch(self._begin):
                self._begin = self._begin.strip()  # white space decides nothing, and there may be much of it
            else:
                self._in_json = bool(_JSON_BEGINS.match(self._begin))
        return self._restored_json(text) if self._in_json else restored_text(text, self._values)

    def _restored_json(self, text: str) -> str:
        whole, end = "", 0
        for found in SHAPE.finditer(text):
            between, end = text[end : found.start()], found.end()
            self._follow(between)
            value = restored_text(found[0], self._values, in_json=self._in_string)
            if not self._in_string:
                self._follow(value)
            whole += between + value
        self._follow(text[end:])
        return whole + text[end:]

    def _follow(self, text: str) -> None:
        """Note whether the text so far ends within a string of JSON."""
        last = ""
        for found in _QUOTES.finditer(self._backslash + text):
            last = found[0]
            self._in_string ^= last == '"'
        self._backslash = last if last == "\\" else ""


def _kind(name: str) -> str:
    return name[1:-1].rpartition("_")[0]
