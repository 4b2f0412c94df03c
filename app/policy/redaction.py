"""Redacts requests as a policy says, and restores what was replaced. Pure.

By mode: `report` only counts, `tokenize` puts placeholders that can be restored, `remove` puts the name of the kind for good,
`refuse` refuses the request. `off` does not look for the kind.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.detection.detectors import Detectors, Hit, detectors_of, joined
from app.detection.shape import SHAPE
from app.policy import leaves
from app.policy.placeholders import Placeholders, is_json, restored_text
from app.policy.rules import Sensitive

_SHAPE_IN_BODY = re.compile(SHAPE.pattern.encode())
_JSON_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


class SensitiveData(Exception):
    """The request has a value of a kind that the policy refuses."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Redacted:
    """A request as it may be stored and run. `values`: by placeholder, what it stands for. `hits`: by (kind, mode)."""

    item: Any
    values: Mapping[str, str]
    hits: Mapping[tuple[str, str], int] = field(default_factory=dict)


class Redactor:
    """Redacts by one rule. Raises DetectorsDown."""

    def __init__(self, sensitive: Sensitive) -> None:
        self._modes = sensitive.active()
        self._tokenizes = "tokenize" in self._modes.values()
        self._detectors: Detectors = detectors_of(frozenset(self._modes), tuple(sorted(sensitive.patterns.items())))

    def redact(self, item: Any, values: Mapping[str, str] | None = None, *, of_engine: bool = True) -> Redacted:
        """The item without its sensitive values. `values`: of the placeholders that it has from an earlier redaction.
        `of_engine`: see `leaves.changed`.

        Raises SensitiveData, TooManyValues.
        """
        return self.over(values).redact(item, of_engine=of_engine)

    def over(self, values: Mapping[str, str] | None = None, *, above: int = 0) -> "Redacting":
        """Redacts several items that share one mapping, which begins as `values`. New placeholders are numbered above `above`."""
        names = Placeholders(values, above)
        return Redacting(self._detectors, self._modes, names, literals=self._tokenizes or bool(values))

    def found(self, text: str) -> str | None:
        """The kind of the first value in a text that would not be stored as it is; None: there is none."""
        hits = self._detectors.find(text.encode())
        return next((hit.kind for hit in hits if self._modes[hit.kind] != "report"), None)

    def scrubbed(self, text: str) -> str:
        """The text with the kinds in place of the values, for errors and logs."""
        return self._detectors.scrubbed(text)


class Redacting:
    """The redaction of items that share one mapping of placeholders."""

    def __init__(self, detectors: Detectors, modes: Mapping[str, str], names: Placeholders, *, literals: bool) -> None:
        self._detectors, self._modes = detectors, modes
        self._names, self._literals = names, literals
        self._hits: dict[tuple[str, str], int] = {}

    @property
    def values(self) -> Mapping[str, str]:
        """What the placeholders stand for in all items so far."""
        return self._names.values

    def redact(self, item: Any, *, of_engine: bool = True) -> Redacted:
        """One of them; the same object where nothing changes. Raises SensitiveData, TooManyValues."""
        self._hits = {}
        changed = leaves.changed(item, self._leaf, of_engine=of_engine)
        return Redacted(changed, self._names.values, self._hits)

    def _leaf(self, text: str, may_be_json: bool) -> str:
        if may_be_json and is_json(text):
            return _JSON_TEXT.sub(self._json_text, text)
        return self._text(text)

    def _json_text(self, found: re.Match[str]) -> str:
        text = orjson.loads(found[0])
        other = self._text(text)
        return found[0] if other == text else orjson.dumps(other).decode()

    def _text(self, text: str) -> str:
        if not (self._literals and "[" in text and SHAPE.search(text)):
            return self._plain(text)
        pieces: list[str] = []
        end = 0  # between literals, so that a value never has a part of one
        for literal in SHAPE.finditer(text):
            pieces += self._plain(text[end : literal.start()]), self._names.of_literal(literal[0])
            end = literal.end()
        return "".join((*pieces, self._plain(text[end:])))

    def _plain(self, text: str) -> str:
        data = text.encode()
        hits = self._detectors.find(data)
        return joined(data, hits, self._replaced) if hits else text

    def _replaced(self, hit: Hit, value: str) -> str:
        mode = self._modes[hit.kind]
        self._hits[hit.kind, mode] = self._hits.get((hit.kind, mode), 0) + 1
        match mode:
            case "refuse":
                raise SensitiveData(hit.kind)
            case "tokenize":
                return self._names.of(hit.kind, value)
            case "remove":
                return f"[{hit.kind.upper()}]"
        return value


class Merging:
    """One mapping of placeholders for several items, each of which has its own. What only looks like a placeholder gets one, so
    that it is never restored as another.
    """

    def __init__(self) -> None:
        self._names = Placeholders()

    @property
    def values(self) -> Mapping[str, str]:
        """What the placeholders stand for in all that was merged."""
        return self._names.values

    def item(self, item: Any, own: Mapping[str, str], *, of_engine: bool = True) -> Any:
        """An item whose placeholders stand for `own`, with those of the common mapping. Raises TooManyValues."""

        def change(text: str, _: bool) -> str:
            return SHAPE.sub(lambda found: self._names.of_other(found[0], own), text) if "[" in text else text

        return leaves.changed(item, change, of_engine=of_engine)

    def body(self, body: bytes, own: Mapping[str, str], *, of_engine: bool = True) -> bytes:
        """The same for a body in JSON."""
        if not _SHAPE_IN_BODY.search(body):
            return body
        return orjson.dumps(self.item(orjson.loads(body), own, of_engine=of_engine))


def used(body: bytes, values: Mapping[str, str]) -> Mapping[str, str]:
    """Those of the values whose placeholders a body in JSON has."""
    if not values:
        return values
    names = {found[0].decode() for found in _SHAPE_IN_BODY.finditer(body)}
    return {name: value for name, value in values.items() if name in names}


def restored(item: Any, values: Mapping[str, str], *, of_answer: bool) -> Any:
    """A request or an answer with the values of its placeholders.

    `of_answer`: a text that is JSON, such as an answer by a schema, stays valid JSON.
    """

    def change(text: str, may_be_json: bool) -> str:
        if "[" not in text or not SHAPE.search(text):
            return text
        return restored_text(text, values, in_json=(may_be_json or of_answer) and is_json(text))

    return leaves.changed(item, change, of_engine=not of_answer)  # an answer may be anybody's, with any fields


def restored_body(body: bytes, values: Mapping[str, str], *, of_answer: bool) -> bytes:
    """The same for a body in JSON."""
    if not any(found[0].decode() in values for found in _SHAPE_IN_BODY.finditer(body)):
        return body
    return orjson.dumps(restored(orjson.loads(body), values, of_answer=of_answer))
