"""Templates: texts with placeholders. Pure.

    {{item.text}}   {{item.text|8000}}   {{json.topic|"other"}}   {{parts.text|2000|"none"}}   {{"{{"}}

`|8000` cuts the value to so many characters and says so; `|"other"` stands in for a value that is missing or null. A list of
values is inserted value by value, with an empty line between them. A literal is inserted as it is, so `{{"{{"}}` writes two
braces. What is inserted is not read again.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.detection.shape import outside
from app.flows.language import MISSING, Fields, LanguageError, Path, Reader, quoted, read_path, read_text, resolve
from app.flows.problems import ItemError, Reason

BETWEEN = "\n\n"  # between the values of a list
_LONGEST_LIMIT = 9
_BRACES = re.compile(r"\{\{|\{\Z")


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder. `most`: characters of a value that are kept; None: all. `default`: for a missing value; None: an error.
    `where`: the place of its template in the stage, like `body.prompt`.
    """

    path: Path
    most: int | None = None
    default: str | None = None
    where: str = field(default="", compare=False)

    def __str__(self) -> str:
        most = "" if self.most is None else f"|{self.most}"
        default = "" if self.default is None else f"|{quoted(self.default)}"
        return f"{{{{{self.path}{most}{default}}}}}"

    def error(self, reason: Reason, message: str) -> ItemError:
        """The error of an item at this placeholder."""
        return ItemError(reason, message, self.where, self.path.column)


@dataclass(frozen=True, slots=True)
class Template:
    """A text with placeholders. No two texts stand side by side, and none is empty."""

    pieces: tuple[str | Slot, ...]

    def __str__(self) -> str:
        return "".join(
            _BRACES.sub(r'{{"\g<0>"}}', each) if isinstance(each, str) else str(each) for each in self.pieces
        )

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Its placeholders."""
        return tuple(each for each in self.pieces if isinstance(each, Slot))


class Room:
    """How many characters may still be inserted into one body."""

    def __init__(self, characters: int) -> None:
        self._most = self._left = characters

    def take(self, characters: int, slot: Slot) -> None:
        """Use some for a placeholder. Raises ItemError: too_long."""
        self._left -= characters
        if self._left < 0:
            message = f"here the request gets longer than {self._most:,} characters; cut values with |8000"
            raise slot.error(Reason.TOO_LONG, message)


def parse(text: str, where: str = "") -> Template:
    """The template of a text. `where`: its place in the stage, like `body.prompt`. Raises LanguageError."""
    pieces, place = list[str | Slot](), 0
    while (start := text.find("{{", place)) >= 0:
        pieces.append(text[place:start])
        piece, place = _placeholder(text, start, where)
        pieces.append(piece)
    return Template(_joined([*pieces, text[place:]]))


def _joined(pieces: list[str | Slot]) -> tuple[str | Slot, ...]:
    """The pieces with neighbouring texts made one."""
    found, texts = list[str | Slot](), list[str]()
    for each in [*pieces, None]:
        if isinstance(each, str):
            texts.append(each)
            continue
        if text := "".join(texts):
            found.append(text)
        texts.clear()
        if each is not None:
            found.append(each)
    return tuple(found)


def _placeholder(text: str, start: int, where: str) -> tuple[str | Slot, int]:
    """What the placeholder that begins here inserts, and the place behind it."""
    reader = Reader(text, start + 2)
    piece = read_text(reader) if reader.next.kind == "text" else _slot(reader, where)
    if not reader.at("}}"):
        mend = "end the placeholder with }}"
        if reader.next.kind == "end":
            raise LanguageError(f'it is not closed; {mend}, or write {{{{"{{{{"}}}} for two braces', start + 1)
        raise reader.unexpected(mend)
    return piece, reader.place


def _slot(reader: Reader, where: str) -> Slot:
    path, most = read_path(reader), None
    if not reader.skip("|"):
        return Slot(path, where=where)
    if reader.next.kind == "number":
        most = _limit(reader)
        if not reader.skip("|"):
            return Slot(path, most, where=where)
    if reader.next.kind != "text":
        raise reader.unexpected('| is followed by a number of characters, like |8000, or a default, like |"none"')
    return Slot(path, most, read_text(reader), where)


def _limit(reader: Reader) -> int:
    word = reader.take()
    if not word.text.isdecimal() or not 0 < len(word.text) <= _LONGEST_LIMIT or int(word.text) == 0:
        raise LanguageError("the limit is a whole number of characters from 1, like |8000", word.column)
    return int(word.text)


def render(template: Template, scope: Fields, room: Room) -> str:
    """The text with its values. Raises ItemError: missing_value, too_long, not_valid (a value that JSON cannot have)."""
    return "".join(each if isinstance(each, str) else inserted(each, scope, room) for each in template.pieces)


def inserted(slot: Slot, scope: Fields, room: Room) -> str:
    """What a placeholder inserts. Raises ItemError."""
    value = resolve(slot.path, scope)
    if not isinstance(value, tuple):
        return _one(slot, value, room)
    texts = []
    for each in value:
        texts.append(_one(slot, each, room))
        room.take(len(BETWEEN), slot)
    return BETWEEN.join(texts)


def _one(slot: Slot, value: Any, room: Room) -> str:
    if value is MISSING or value is None:
        if slot.default is None:
            message = f'{slot.path} is missing or null; give it a default, like {{{{{slot.path}|"none"}}}}'
            raise slot.error(Reason.MISSING_VALUE, message)
        text = slot.default
    else:
        text = cut(text_of(value, slot), slot.most)
    room.take(len(text), slot)
    return text


def cut(text: str, most: int | None) -> str:
    """The first characters of a text, with a mark that says how many there were. A placeholder is not cut but left out."""
    if most is None or len(text) <= most:
        return text
    kept = outside(text, most)
    return f"{text[:kept]} […cut: {kept:,} of {len(text):,} characters]"


def written(value: Any) -> str:
    """A value as JSON, with integers of any size. Raises TypeError if it is nested too deeply."""
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def text_of(value: Any, slot: Slot) -> str:
    """A value as it is inserted: a text as it is, anything else as JSON. Raises ItemError."""
    if isinstance(value, str):
        return value
    try:
        return written(value)
    except TypeError:
        message = f"{slot.path} cannot be written as JSON: it is nested too deeply; insert a part of it, like {slot.path}.name"
        raise slot.error(Reason.NOT_VALID, message) from None
