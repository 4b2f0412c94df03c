"""What templates and conditions have in common: words, literals, paths, and what a path finds. Pure.

    json.topic   item["first name"]   choices[0].text   parts.json.title

A path begins with a root and goes on with names and places. A name of a list means that name of each of its elements. Nothing
of a text is ever evaluated as code, and every reader takes time linear in its text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

WORDS = frozenset({"and", "or", "not", "in", "true", "false", "null"})
Scalar = str | int | float | bool | None

_WORD = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_-]*)
      | (?P<number>-?[0-9]{1,300}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<text>"[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*')
      | (?P<sign>==|!=|<=|>=|\}\}|[<>.,|()\[\]])""",
    re.VERBOSE | re.DOTALL,
)
_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_LONGEST_PLACE = 9
_MENDS = {
    "=": "write == to compare",
    "!": "write not, or != to compare",
    "&": "write and",
    "{": "a placeholder ends with }}",
    "}": "a placeholder ends with }}",
    '"': 'the text is not closed; end it with "',
    "'": "the text is not closed; end it with '",
}


class LanguageError(ValueError):
    """A text is not in the language. `message`: what is wrong and how to correct it. `column`: where, counted from 1."""

    def __init__(self, message: str, column: int) -> None:
        super().__init__(f"column {column}: {message}")
        self.message, self.column = message, column


class Missing(Enum):
    """What a path finds where there is nothing."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class Readable:
    """Base of what paths read by name and that is no object of JSON: scopes and answers."""

    __slots__ = ()

    def get(self, name: str, default: Any = MISSING, /) -> Any:
        """The value of a name, or `default`."""
        raise NotImplementedError


Fields = Readable | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value as it is written."""

    value: Scalar

    def __str__(self) -> str:
        match self.value:
            case None:
                return "null"
            case bool():
                return str(self.value).lower()
            case str():
                return quoted(self.value)
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Path:
    """Where a value is: a root, then names (of objects) and places (in lists, from 0). `column`: where the path is written."""

    root: str
    keys: tuple[str | int, ...] = ()
    column: int = field(default=1, compare=False)

    def __str__(self) -> str:
        return self.root + "".join(map(_written, self.keys))


def _written(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    return f".{key}" if _NAME.fullmatch(key) else f"[{quoted(key)}]"


def quoted(text: str) -> str:
    """A text as a literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Word(NamedTuple):
    """One word of a text. `kind`: name, number, text, sign, or end. `column`: counted from 1."""

    kind: str
    text: str
    column: int


class Reader:
    """Reads words from left to right. `next` is the word that comes next."""

    def __init__(self, text: str, start: int = 0) -> None:
        self._text, self._after = text, start
        self.next = self._scan()

    @property
    def place(self) -> int:
        """How many characters are before the end of the word that comes next."""
        return self._after

    def take(self) -> Word:
        """The next word, and go on."""
        word = self.next
        self.next = self._scan()
        return word

    def at(self, *texts: str) -> bool:
        """Whether the next word is one of these signs or names."""
        return self.next.kind in ("sign", "name") and self.next.text in texts

    def skip(self, sign: str) -> bool:
        """Go on if the next word is this one. Whether it was."""
        found = self.at(sign)
        if found:
            self.take()
        return found

    def need(self, sign: str, mend: str) -> None:
        """Go on behind this word. Raises LanguageError if another comes next."""
        if not self.skip(sign):
            raise self.unexpected(mend)

    def unexpected(self, mend: str) -> LanguageError:
        """The error that the next word cannot stand here."""
        found = "the text ends here" if self.next.kind == "end" else f"{shown(self.next.text)} cannot stand here"
        return LanguageError(f"{found}; {mend}", self.next.column)

    def _scan(self) -> Word:
        space = _SPACE.match(self._text, self._after)
        start = space.end() if space else self._after
        if start == len(self._text):
            self._after = start
            return Word("end", "", start + 1)
        found = _WORD.match(self._text, start)
        if found is None:
            sign = self._text[start]
            mend = _MENDS.get(sign, "write paths, literals, comparisons, in, and, or, not")
            raise LanguageError(f"{sign!r} has no meaning here; {mend}", start + 1)
        self._after = found.end()
        return Word(str(found.lastgroup), found[0], start + 1)


def shown(text: str) -> str:
    """A text in an error, at most 40 characters of it."""
    return repr(text if len(text) <= 40 else text[:39] + "…")


def read_path(reader: Reader) -> Path:
    """The path that comes next. Raises LanguageError."""
    if reader.next.kind != "name" or reader.next.text in WORDS:
        raise reader.unexpected("write a path, like json.topic")
    root, keys = reader.take(), list[str | int]()
    while reader.at(".", "["):
        if reader.take().text == "[":
            keys.append(_bracketed(reader))
        elif reader.next.kind == "name":
            keys.append(reader.take().text)
        else:
            raise reader.unexpected('a dot is followed by a name; write [0] for a place, and ["a b"] for other names')
    if reader.at("("):
        raise reader.unexpected("there are no calls")
    return Path(root.text, tuple(keys), root.column)


def _bracketed(reader: Reader) -> str | int:
    word = reader.next
    if word.kind == "text":
        key: str | int = read_text(reader)
    elif word.kind == "number" and word.text.isdecimal() and len(word.text) <= _LONGEST_PLACE:
        key = int(reader.take().text)
    else:
        raise reader.unexpected('brackets have a place, like [0], or a name, like ["a b"]')
    reader.need("]", "close the bracket with ]")
    return key


def read_text(reader: Reader) -> str:
    """The text in quotation marks that comes next. Raises LanguageError."""
    word = reader.take()

    def meant(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPED:
            mend = "write \\\\ for a backslash, \\n, \\t, or a backslash before a quotation mark"
            raise LanguageError(f"{shown(found[0])} means nothing; {mend}", word.column + 1 + found.start())
        return _ESCAPED[found[1]]

    return _ESCAPE.sub(meant, word.text[1:-1])


def read_literal(reader: Reader) -> Literal:
    """The literal that comes next. Raises LanguageError."""
    word = reader.next
    if word.kind == "text":
        return Literal(read_text(reader))
    if word.kind == "number":
        reader.take()
        value = int(word.text) if word.text.lstrip("-").isdecimal() else float(word.text)
        if abs(value) == float("inf"):
            raise LanguageError("the number is too large; write at most 1e308", word.column)
        return Literal(value)
    if word.kind == "name" and word.text in ("true", "false", "null"):
        return Literal({"true": True, "false": False, "null": None}[reader.take().text])
    raise reader.unexpected('write a literal, like 0.7, "text", true, false or null')


def parse_path(text: str) -> Path:
    """A text that is one path. Raises LanguageError."""
    reader = Reader(text)
    path = read_path(reader)
    if reader.next.kind != "end":
        raise reader.unexpected("write one path, like json.topic")
    return path


def resolve(path: Path, scope: Fields) -> Any:
    """The value at a path, or MISSING. A name of a list gives a tuple: that name of each element, with MISSING where it lacks."""
    value = scope.get(path.root, MISSING)
    for key in path.keys:
        if value is MISSING:
            return MISSING
        value = _at_place(value, key) if isinstance(key, int) else _named(value, key)
    return value


def _at_place(value: Any, place: int) -> Any:
    return value[place] if isinstance(value, (list, tuple)) and place < len(value) else MISSING


def _named(value: Any, name: str) -> Any:
    if isinstance(value, list):
        return tuple(_field(each, name) for each in value)
    if isinstance(value, tuple):
        return tuple(_field(each, name) for element in value for each in _elements(element))
    return _field(value, name)


def _elements(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else (value,)


def _field(value: Any, name: str) -> Any:
    return value.get(name, MISSING) if isinstance(value, (dict, Readable)) else MISSING
