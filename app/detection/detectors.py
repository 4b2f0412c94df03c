"""Finds sensitive values in a text: personal data, secrets, and what an account's own patterns describe. Pure.

One search with RE2 (https://github.com/google/re2) tells which kinds a text may have, of a long one whether it may have any; then
each is searched for by itself. Built-in kinds take time linear in the length of the text: those with a checksum are short, so
that a search that goes on within a candidate costs little, and of the others all that a search has read is a value or is read
once more at most. A kind with a checksum counts only where that holds: cards (Luhn, ISO/IEC 7812-1), IBANs (mod 97, ISO 13616),
US social security numbers (the ranges that are never assigned).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from app.detection import checksums

try:
    import re2
except ImportError:  # on a platform without a wheel: policies that redact refuse what they cannot check
    re2 = None

NAME = re.compile(r"[a-z][a-z0-9_]{0,11}")  # of a kind; it stands in placeholders, which have at most 20 characters
LITERAL = "literal"  # a text that looks like a placeholder
_SHORTEST = len("a@b.cc")  # of the values of built-in kinds
_LONGEST_PATTERN, _MOST_MEMORY = 500, 32 * 2**20
# A set of patterns never gives its fast search up, however many states a text makes it build: so it is for short texts, and its
# memory is small.
_SHORT_TEXT, _SET_MEMORY = 4096, 8 * 2**20
_SECRETS = (
    r"\bsk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and others
    r"\b[rs]k_(?:live|test|sw|op)_[A-Za-z0-9]{16,}",  # Stripe, Slackwater
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS
    r"\bAIza[A-Za-z0-9_-]{35}",  # Google
    r"\bgh[opsur]_[A-Za-z0-9]{36,}",  # GitHub
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bglpat-[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?",  # GitLab
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\bhf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"\bnpm_[A-Za-z0-9]{36}\b",
    r"\bpypi-AgE[A-Za-z0-9_-]{50,}",
    r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",  # SendGrid
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[A-Za-z0-9+/=\s\\>|]*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
)
# Characters are alternatives, not classes, so that Python's `re` can search bytes for them, too.
_HYPHEN = f"(?:-|{'|'.join(checksums.HYPHENS)})"
_BETWEEN = f"(?: |-|%20|%2[Dd]|{'|'.join(checksums.SPACES + checksums.HYPHENS)})"  # the groups of a number
_OF_PHONE = rf"(?:[ ()./-]|%20|{'|'.join(checksums.SPACES + checksums.HYPHENS)})"
_PLUS_PHONE = rf"(?:{_OF_PHONE}|\+)"  # in the query of a URL
# Letters of names, without those of scripts that are written without spaces: there a name would swallow its sentence.
_LETTERS, _ANY_LETTERS, _OF_BYTES = "A-Za-z\u00c0-\u024f\u0370-\u03ff\u0400-\u04ff", r"\pL", r"A-Za-z\x80-\xff"
_LOCAL = rf"[{_LETTERS}0-9_](?:[{_LETTERS}0-9._%+-]*[{_LETTERS}0-9_%+-])?"
_HOST = rf"[{_LETTERS}0-9-]+(?:\.[{_LETTERS}0-9-]+)*\.(?:xn--[A-Za-z0-9-]{{2,59}}|[{_LETTERS}]{{2,24}})"
_ANY_HOST = rf"[{_ANY_LETTERS}0-9-]+(?:\.[{_ANY_LETTERS}0-9-]+)*\.[{_ANY_LETTERS}]{{2,24}}"
# By kind: its pattern in RE2's syntax, the check that returns how many bytes of a candidate are such a value (None: all), and
# what may not stand before it. Among values that begin at the same place the first kind wins.
Check = Callable[[bytes], int]
_DIGITS_BEFORE, _WORD_BEFORE = (
    re.compile(rb"[0-9][.,-]?\Z|(?:\A|[^0-9A-Za-z])[0-9]{4}[ .]\Z"),
    re.compile(rb"[0-9A-Za-z)\]]\Z"),
)
_CONTEXT = 8  # bytes that are looked at
_ID = re.compile(rb"[0-9a-f]{32,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_OF_ID, _SHORTEST_ID = re.compile(rb"[0-9a-fA-F-]"), 32
_OF_DIGITS = frozenset({"card", "iban", "ssn", "phone"})
_LONGEST_ID = 64  # of which so many bytes are looked at before and behind
_QUERY_BEFORE = re.compile(rb"[=?&:/]\Z")  # where a plus is a space
# An escape of JSON is no letter of the word behind it. It becomes white space of the same length.
_ESCAPES = re.compile(rb"\\(?:[nrt]|u00(?:0[9ad]|2[267]|3[ce]))")
_GROUP_BEFORE = re.compile(rb"[0-9A-Za-z)\]]\Z|[0-9][ .-]\Z")  # of a number of which this is the next one
_BUILT_IN: Mapping[str, tuple[str, Check | None]] = {
    "secret": ("|".join(_SECRETS), checksums.secret),
    "jwt": (r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{10,}", None),
    "email": (rf"{_LOCAL}(?:@|%40)(?:{_HOST}|{_ANY_HOST})", checksums.email),
    "iban": (rf"[A-Za-z]{{2}}{_BETWEEN}?[0-9]{{2}}(?:(?:{_BETWEEN}|\+){{0,2}}[A-Za-z0-9]){{11,30}}\b", checksums.iban),
    "card": (rf"[2-68][0-9](?:(?:{_BETWEEN}|[.+]){{0,2}}[0-9]){{11,17}}\b", checksums.card),
    "ssn": (rf"[0-8][0-9]{{2}}{_HYPHEN}[0-9]{{2}}{_HYPHEN}[0-9]{{4}}\b", checksums.ssn),
    "phone": (
        rf"\+[1-9](?:{_OF_PHONE}{{0,3}}[0-9]){{6,14}}\b|%2[Bb][1-9](?:(?:{_OF_PHONE}|\+){{0,3}}[0-9]){{6,14}}\b"
        rf"|\b00{_OF_PHONE}?[1-9][0-9]{{0,2}}{_PLUS_PHONE}(?:{_PLUS_PHONE}{{0,3}}[0-9]){{5,13}}\b"
        rf"|(?:\b1{_PLUS_PHONE})?(?:\([0-9]{{3}}\){_PLUS_PHONE}?|\b[0-9]{{3}}{_PLUS_PHONE}{{1,3}})[0-9]{{3}}{_PLUS_PHONE}{{1,3}}[0-9]{{4}}\b",
        checksums.phone,
    ),
}
_NOT_BEFORE = {"card": _DIGITS_BEFORE, "ssn": re.compile(rb"[0-9][.-]?\Z"), "iban": _WORD_BEFORE, "phone": _WORD_BEFORE}
BUILT_IN_KINDS = tuple(_BUILT_IN)


class DetectorsDown(Exception):
    """Sensitive values cannot be searched for, so nothing may pass."""


class PatternError(ValueError):
    """A pattern is not one of RE2. The message says why, without the pattern."""


class Hit(NamedTuple):
    """A sensitive value: its kind, and where its UTF-8 bytes are in the text."""

    kind: str
    start: int
    end: int


class Detectors:
    """The detectors of some kinds. Raises DetectorsDown, PatternError."""

    def __init__(self, kinds: Iterable[str], patterns: Mapping[str, str], *, by_re2: bool = True) -> None:
        compiled = _compiled if by_re2 else _of_bytes
        own = {kind: (pattern, None) for kind, pattern in patterns.items()}
        known: Mapping[str, tuple[str, Check | None]] = {**own, **_BUILT_IN}
        wanted = frozenset(kinds)
        chosen = [(kind, *known[kind]) for kind in known if kind in wanted]
        self._kinds = [(kind, compiled(pattern), check) for kind, pattern, check in chosen]
        self._shortest = 1 if own else _SHORTEST
        self._any = compiled("|".join(f"(?:{pattern})" for _, pattern, _ in chosen)) if chosen else None
        self._set = _set_of([pattern for _, pattern, _ in chosen]) if by_re2 else None

    def find(self, text: bytes) -> list[Hit]:
        """The sensitive values of a text in UTF-8, in order and without overlap. Of two that overlap, the first stays whole."""
        if self._any is None or len(text) < self._shortest:
            return []
        plain = _ESCAPES.sub(_blank, text) if b"\\" in text else text
        possible = set(self._kinds_in(text))
        if plain is not text:
            possible.update(self._kinds_in(plain))
        kinds = [self._kinds[place] for place in sorted(possible)]
        scans = [_Scan(*kind, plain if kind[0] in _BUILT_IN else text) for kind in kinds]
        hits: list[Hit] = []
        while waiting := [scan.hit for scan in scans if scan.hit is not None]:
            hits.append(min(waiting, key=_start))
            for scan in scans:
                scan.go_on(hits[-1].end)
        return hits

    def _kinds_in(self, text: bytes) -> Iterable[int]:
        """The places in `_kinds` of those that a text may have."""
        if self._set is not None and len(text) <= _SHORT_TEXT:
            return self._set.Match(text) or ()
        assert self._any is not None
        return range(len(self._kinds)) if self._any.search(text) else ()

    def scrubbed(self, text: str) -> str:
        """The text with the kinds in place of the values, for errors and logs."""
        data = text.encode("utf-8", "replace")
        return joined(data, self.find(data), lambda hit, _: f"[{hit.kind.upper()}]")


class _Scan:
    """A search of a text for one kind. `hit`: the next value; None: there is no more."""

    def __init__(self, kind: str, pattern: Any, check: Check | None, text: bytes) -> None:
        self._kind, self._pattern, self._check, self._text = kind, pattern, check, text
        self.hit = self._from(0)

    def go_on(self, end: int) -> None:
        """Go on behind a value that ends here. What reaches beyond it keeps its rest, but for a checksum no rest is a value."""
        if self.hit is None or self.hit.start >= end:
            return
        if self._check is None and self.hit.end > end:
            self.hit = self.hit._replace(start=end)
        else:
            self.hit = self._from(end)

    def _from(self, position: int) -> Hit | None:
        while (found := self._pattern.search(self._text, position)) is not None:
            start, end = found.span()
            length = end - start if self._check is None else self._check(self._text[start:end])
            if length and not self._goes_on(start, start + length):
                return Hit(self._kind, start, start + length)
            position = start + 1
        return None

    def _goes_on(self, start: int, end: int) -> bool:
        """Whether what is here is a part of something longer, or a sum."""
        before, text = _NOT_BEFORE.get(self._kind), self._text[max(0, start - _CONTEXT) : start]
        if self._kind == "phone" and self._text.startswith(b"00", start):
            before = _GROUP_BEFORE
        if (
            self._kind == "phone"
            and self._text.find(b"+", start + 1, end) >= 0
            and not self._text.startswith(b"%2", start)
        ):
            return _QUERY_BEFORE.search(text) is None
        if self._kind == "card" and checksums.is_of_iban(text):
            return True
        if self._kind in _OF_DIGITS and self._is_of_id(start, end):
            return True
        return before is not None and before.search(text) is not None

    def _is_of_id(self, start: int, end: int) -> bool:
        """Whether this is within a UUID, or an id or a hash of 32 or more hexadecimal digits."""
        if end - start < _SHORTEST_ID and not _OF_ID.search(
            self._text[max(0, start - 1) : start] + self._text[end : end + 1]
        ):
            return False
        first = max(0, start - _LONGEST_ID)
        return any(
            found.start() + first <= start and end <= found.end() + first
            for found in _ID.finditer(self._text[first : end + _LONGEST_ID])
        )


def _blank(found: re.Match[bytes]) -> bytes:
    return b"\n" * len(found[0])


def _start(hit: Hit) -> int:
    return hit.start


def joined(data: bytes, hits: list[Hit], replace: Callable[[Hit, str], str]) -> str:
    """A text in UTF-8 with `replace(hit, value)` in place of each hit."""
    pieces: list[str] = []
    end = 0
    for hit in hits:
        pieces += data[end : hit.start].decode(), replace(hit, data[hit.start : hit.end].decode())
        end = hit.end
    return "".join((*pieces, data[end:].decode()))


def check_pattern(pattern: str) -> None:
    """Raise PatternError for a pattern that cannot be used, DetectorsDown where none can."""
    if len(pattern) > _LONGEST_PATTERN:
        raise PatternError(f"has more than {_LONGEST_PATTERN} characters")
    if r"\C" in pattern:
        raise PatternError(r"has \C, which could cut a character in two")
    compiled = _compiled(pattern)
    if compiled.groupindex:
        raise PatternError("has a named group; write (?:…) instead")
    if compiled.search(b"") is not None:
        raise PatternError("matches the empty text")


def built_in() -> Detectors:
    """The detectors of all built-in kinds. Without RE2 they search with Python's `re`, which is good enough for short texts."""
    try:
        return Detectors(BUILT_IN_KINDS, {})
    except DetectorsDown:
        return Detectors(BUILT_IN_KINDS, {}, by_re2=False)


@lru_cache(maxsize=64)
def detectors_of(kinds: frozenset[str], patterns: tuple[tuple[str, str], ...]) -> Detectors:
    """The detectors of these kinds, compiled once. `patterns`: (kind, pattern) of the account. Raises DetectorsDown."""
    try:
        return Detectors(kinds, dict(patterns))
    except PatternError as error:
        raise DetectorsDown(f"a pattern cannot be used: {error}") from None


def _of_bytes(pattern: str) -> Any:
    for letters in (_LETTERS, _ANY_LETTERS):
        pattern = pattern.replace(letters, _OF_BYTES)
    return re.compile(pattern.encode())


def _options(memory: int) -> Any:
    if re2 is None:
        raise DetectorsDown("google-re2 is not installed")
    options = re2.Options()
    options.max_mem, options.log_errors = memory, False
    return options


def _set_of(patterns: Sequence[str]) -> Any:
    """What tells which of these patterns a text matches. None: they are too large together. A set that compiles never runs out of
    memory in a search: RE2's `Compiler::CompileSet` tries one, and a full cache is emptied (re2/dfa.cc, kManyMatch).
    """
    found = re2.Set.SearchSet(_options(_SET_MEMORY))
    for pattern in patterns:
        found.Add(pattern.encode())
    try:
        found.Compile()
    except re2.error:
        return None
    return found


def _compiled(pattern: str) -> Any:
    options = _options(_MOST_MEMORY)
    try:
        return re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        raise PatternError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
