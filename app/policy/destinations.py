"""The hosts and addresses that the arguments of a tool call name, however they are spelled. Pure.

What counts: the host of a URL, what follows an `@`, a field such as `host`, IPv4 and IPv6 addresses, `localhost`, and any dotted
word, unless it ends like a file. A dotted word that is no host is taken for one rather than a host for none. Where something says
that it is a host, an address has every form that a resolver takes (`127.1`, `2130706433`); elsewhere it has four parts, or is
hexadecimal, or begins with an octal part. docs/governance.md says what is not seen.
"""

import ipaddress
import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from app.detection.checksums import NO_DOMAINS

_DOTS, _NOTHING = "\u3002\uff61", "\u00ad\u200b\u200c\u200d\u2060\ufeff"  # which names of hosts may have
_AS_SEEN = str.maketrans(dict.fromkeys(_DOTS, ".") | dict.fromkeys(_NOTHING, "") | {"\\": "/"})
_DECODED = 3  # times that percent signs and escapes are read
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_OBJECT = re.compile(r"[\s\ufeff]*\{")  # how JSON of arguments begins
_AUTHORITY = re.compile(r"//+([^\s/?#\"'<>]*)")
_RUN = re.compile(r"[\w.-]+")
_V6 = re.compile(r"[0-9a-f:.]+")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
# What is an address of fewer than four parts even where nothing says that it is a host.
_HEXADECIMAL, _OCTAL = re.compile(r"0x0*[0-9a-f]{7,8}"), re.compile(r"0[0-7]{2,3}")
_WITH_PORT = re.compile(r"([\w.-]+)(?::[0-9]*)?")
_LONGEST_V6, _LONGEST_NAME = 45, 253
# A field with such a name has a host, even one without a dot.
_FIELDS = frozenset(("address", "domain", "endpoint", "host", "hostname", "ip", "server"))


class Unreadable(ValueError):
    """Arguments begin as JSON and are none: a tool that reads them leniently may find any host."""


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object, those of the same name, too: tools differ in which of them they take."""


class _Number(str):
    """A number as it is written."""


def named_in(arguments: Any) -> Iterator[str]:
    """The hosts in the arguments of a call, JSON, any text, or a value: names in small letters and Punycode, addresses as usual.

    Raises Unreadable.
    """
    for field, leaf in _leaves(_read(arguments) if isinstance(arguments, str) else arguments):
        has_host = field.lower() in _FIELDS
        if isinstance(leaf, _Number) or not isinstance(leaf, str):
            if has_host:
                yield _canonical(str(leaf).lower())
            continue
        for form in _forms(leaf):
            yield from _in_text(form)
            if has_host and (host := _WITH_PORT.fullmatch(form.strip())):
                yield _canonical(host[1])


def _read(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        if _OBJECT.match(text):
            raise Unreadable from None
        return text


def _leaves(value: Any) -> Iterator[tuple[str, str | float]]:
    """The texts and numbers in a value, keys included, each with the name of its field."""
    waiting = [("", value)]
    while waiting:
        field, each = waiting.pop()
        if isinstance(each, dict | _Pairs):
            for key, inner in each.items() if isinstance(each, dict) else each:
                yield "", key
                waiting.append((key, inner))
        elif isinstance(each, list):
            waiting += ((field, inner) for inner in each)
        elif isinstance(each, str | int | float) and not isinstance(each, bool):
            yield field, each


def _forms(text: str) -> Iterator[str]:
    """The text as whoever follows it may read it."""
    for _ in range(_DECODED + 1):
        yield unicodedata.normalize("NFKC", text.translate(_AS_SEEN)).translate(_AS_SEEN).lower()
        if (decoded := _ESCAPE.sub(_unescaped, unquote(text))) == text:
            return
        text = decoded


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16))


def _in_text(text: str) -> Iterator[str]:
    for found in _AUTHORITY.finditer(text):
        host = found[1].rpartition("@")[2]
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if host:
            yield _canonical(host)
    for after in text.split("@")[1:]:
        if host := _RUN.match(after.removeprefix("[")):
            yield _canonical(host[0])
    for found in _RUN.finditer(text):
        if _is_host(word := found[0].strip(".-_")):
            yield _canonical(word)
    for found in _V6.finditer(text):
        if found[0].count(":") > 1 and len(found[0]) <= _LONGEST_V6 and (address := _address_of(found[0].strip("."))):
            yield address


def _is_host(word: str) -> bool:
    """Whether a word names a host without a sign that it does."""
    labels = word.split(".")
    if all(map(_NUMBER.fullmatch, labels)):
        return len(labels) == 4 or _is_short_address(labels)
    last = labels[-1]
    return word == "localhost" or (
        len(labels) > 1 and len(last) > 1 and (last.isalpha() or last.startswith("xn--")) and last not in NO_DOMAINS
    )


def _is_short_address(labels: Sequence[str]) -> bool:
    """Whether numbers are an address of fewer than four parts, and not a decimal number or a date."""
    if len(labels) == 1:
        return _HEXADECIMAL.fullmatch(labels[0]) is not None
    return len(labels) < 4 and (
        any(each.startswith("0x") for each in labels) or _OCTAL.fullmatch(labels[0]) is not None
    )


def _canonical(host: str) -> str:
    """One spelling of a host."""
    host = host.strip(".")
    if (address := _address_of(host)) is not None:
        return address
    if len(host) > _LONGEST_NAME:
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def _address_of(host: str) -> str | None:
    """The address that a host is; None: it is a name."""
    try:
        if ":" in host:
            found = ipaddress.IPv6Address(host.partition("%")[0])
            return str(found.ipv4_mapped or found)
        parts = [_number(each) for each in host.split(".")]
        value = parts.pop()
        for place, part in enumerate(parts):
            if part > 255:
                return None
            value += part << 8 * (3 - place)
        return str(ipaddress.IPv4Address(value)) if len(parts) < 4 else None
    except ValueError:
        return None


def _number(text: str) -> int:
    """A part of an address: decimal, octal with 0, or hexadecimal with 0x. Raises ValueError."""
    if not _NUMBER.fullmatch(text) or len(text) > 32:
        raise ValueError(text)
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") and len(text) > 1 else 10)
