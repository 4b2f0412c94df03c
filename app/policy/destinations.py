"""The hosts and addresses that the arguments of a tool call name, however they are spelled. Pure.

What counts: the host of a URL, what follows an `@`, IPv4 and IPv6 addresses in every form that a resolver takes (`127.1`,
`0x7f.0.0.1`, in a URL `2130706433`), `localhost`, and any dotted word, unless it ends like a file. A dotted word that is no host
is taken for one rather than a host for none. Not seen: what is encoded otherwise than by percent signs, or put together by the
tool.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import orjson

from app.detection.checksums import NO_DOMAINS

_DOTS, _NOTHING = "\u3002\uff61", "\u00ad\u200b\u200c\u200d\u2060\ufeff"  # which names of hosts may have
_AS_SEEN = str.maketrans(dict.fromkeys(_DOTS, ".") | dict.fromkeys(_NOTHING, "") | {"\\": "/"})
_DECODED = 3  # times that percent signs are read
_AUTHORITY = re.compile(r"//+([^\s/?#\"'<>]*)")
_RUN = re.compile(r"[\w.-]+")
_V6 = re.compile(r"[0-9a-f:.]+")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
_LONGEST_V6, _LONGEST_NAME = 45, 253
# A field with such a name has a host, even one without a dot.
_FIELDS = frozenset(("address", "domain", "endpoint", "host", "hostname", "ip", "server"))


def named_in(arguments: str) -> Iterator[str]:
    """The hosts in the arguments of a call, JSON or any text: names in small letters and Punycode, addresses as usual."""
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        given = arguments
    for field, text in _texts(given):
        for form in _forms(text):
            yield from _in_text(form)
            if field.lower() in _FIELDS and _RUN.fullmatch(form.strip()):
                yield _canonical(form.strip())


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a value, keys included, each with the name of its field."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield "", key
            yield from _texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, field)


def _forms(text: str) -> Iterator[str]:
    """The text as whoever follows it may read it."""
    for _ in range(_DECODED + 1):
        yield unicodedata.normalize("NFKC", text.translate(_AS_SEEN)).translate(_AS_SEEN).lower()
        if (decoded := unquote(text)) == text:
            return
        text = decoded


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
    if len(labels) == 4 and all(map(_NUMBER.fullmatch, labels)):
        return True
    last = labels[-1]
    return word == "localhost" or (
        len(labels) > 1 and len(last) > 1 and (last.isalpha() or last.startswith("xn--")) and last not in NO_DOMAINS
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
