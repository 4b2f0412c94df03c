"""Why a text is not JSON, or what it is instead; where; and how to make it JSON. Pure."""

import re
from typing import Any

import orjson

BOM = b"\xef\xbb\xbf"  # Excel and PowerShell write it before UTF-8
DEEPEST = 64  # levels; no request needs more
TOO_DEEP = f"nested deeper than {DEEPEST} levels, the limit"

_UTF_8 = "send it as UTF-8"
_PLAIN = "send it uncompressed"
_ITSELF = "send the text itself"
# By their first bytes; a longer beginning stands before a shorter one.
KINDS = (
    (b"\x1f\x8b", f"compressed with gzip; {_PLAIN}"),
    (b"\x28\xb5\x2f\xfd", f"compressed with zstd; {_PLAIN}"),
    (b"BZh", f"compressed with bzip2; {_PLAIN}"),
    (b"\xfd7zXZ\0", f"compressed with xz; {_PLAIN}"),
    (b"\x04\x22\x4d\x18", f"compressed with lz4; {_PLAIN}"),
    (b"x\x9c", f"compressed with zlib; {_PLAIN}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7z archive; {_ITSELF}"),
    (b"ustar", f"a tar archive; {_ITSELF}"),
    (b"PK\x03\x04", f"a ZIP archive or an office document; {_ITSELF}"),
    (b"PAR1", "a Parquet file; send JSON"),
    (b"%PDF-", "a PDF; send JSON"),
    (b"\xff\xfe\0\0", f"text in UTF-32; {_UTF_8}"),
    (b"\0\0\xfe\xff", f"text in UTF-32; {_UTF_8}"),
    (b"\xff\xfe", f"text in UTF-16; {_UTF_8}"),
    (b"\xfe\xff", f"text in UTF-16; {_UTF_8}"),
)
_BEHIND = {b"ustar": 257}  # bytes that stand before such a beginning
# What other languages write, at the place where a value or a key was expected.
_QUOTES = "single or curly quotes; put strings and keys in double quotes"
_COMMENT = "a comment, which JSON does not have; remove it"
WORDS = {
    "NaN": "NaN is not JSON; send a number or null",
    "-Infinity": "-Infinity is not JSON; send a number or null",
    "Infinity": "Infinity is not JSON; send a number or null",
    "None": "None is not JSON; send null",
    "undefined": "undefined is not JSON; send null, or leave the key out",
    "True": "True is not JSON; send true",
    "False": "False is not JSON; send false",
    "'": _QUOTES,
    "\N{LEFT DOUBLE QUOTATION MARK}": _QUOTES,
    "\N{RIGHT DOUBLE QUOTATION MARK}": _QUOTES,
    "//": _COMMENT,
    "/*": _COMMENT,
}
_BARE_WORD = "a word without quotes; put strings in double quotes"
# Of orjson's messages: what to do about them.
REMEDIES = {
    "literal": _BARE_WORD,
    "control character": "a line break or another control character in a string; write it as an escape (\\n, \\t, \\u001b)",
    "escaped": "an invalid escape in a string; write \\\\ for a backslash",
    "trailing comma": "a comma after the last entry; remove it",
    "infinity": "a number beyond the range of a double; send it as a string",
    "string key": "expected a key in double quotes",
    "after sign": "an incomplete number; it begins with a digit, or with - and a digit",
}
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")  # a character that text has not, except within a string by mistake
_BINARY = "binary, or compressed, as with brotli; send text, uncompressed"
_PROSE = "plain text, such as CSV; put a JSON object on each line"
HEAD = 16_384  # bytes that show what a file is
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u(....)|.)", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def kind(value: Any) -> str:
    """What a value of JSON is: "an array"."""
    return _NAMES.get(type(value), "a number")


def reason(raw: bytes, error: orjson.JSONDecodeError) -> str:
    """Why orjson refuses a text, with the place and the remedy where they are known."""
    if what := foreign(raw):
        return f"it is {what}"
    if raw.startswith(BOM):
        return "it begins with a byte order mark; remove it"
    if problem := wrong_byte(raw):
        return problem
    text, at = error.doc, error.pos
    if "surrogate" in error.msg and (half := _half_of_a_pair(text, at)):
        return half
    return f"{_at_place(text, at, error.msg)} ({_place(text, at)})"


def _at_place(text: str, at: int, said: str) -> str:
    """What is wrong at this place of a text, of which orjson has said this."""
    if _depth(text[:at]) > DEEPEST:
        return TOO_DEEP
    for word, remedy in WORDS.items():
        if text.startswith(word, at) or (word[0] == "-" and at and text.startswith(word, at - 1)):
            return remedy
    if "after document" in said:
        extra = "remove the comma" if text.startswith(",", at) else "send one value"
        return f"there is more after the end of the value; {extra}"
    if at >= len(text):
        return "it ends before it is complete"
    if "a JSON value" in said and text[at].isalpha():
        return _BARE_WORD
    found = said.replace("unexpected character", f"unexpected character {text[at]!r}")
    return next((remedy for part, remedy in REMEDIES.items() if part in said), found)


def no_utf8(head: bytes) -> str:
    """What a file is that begins like this, and what to do: "text in UTF-16; send it as UTF-8". Empty: it may be UTF-8."""
    for begin, what in KINDS:
        if head.startswith(begin, _BEHIND.get(begin, 0)):
            return what
    if b"\0\0\0" in (head[:3], head[1:4]):
        return f"text in UTF-32, or binary; {_UTF_8}"
    if b"\0" in head[:2]:  # each text of JSON begins with ASCII
        return f"text in UTF-16, or binary; {_UTF_8}"
    return ""


def foreign(head: bytes) -> str:
    """What a text is that begins like this, and what to do. Empty: it may be JSON."""
    return no_utf8(head) or ("HTML or XML; send JSON" if head.lstrip().startswith(b"<") else "")


def of_file(head: bytes) -> str:
    """What a file is that is no lines of JSON, and what to do; empty: not known. `head`: its beginning, without a BOM."""
    if what := foreign(head):
        return what
    first, end, rest = head.lstrip().partition(b"\n")
    error = _error(first.rstrip())
    if first.startswith(b"[") and (error or not rest.strip()):
        return "one JSON array; put each of its elements on a line of its own, without a comma (`jq -c '.[]' FILE`)"
    if first.startswith(b"{") and end and error and 0 < len(error.doc) <= error.pos:
        return "JSON over several lines; put each request on one line (`jq -c . FILE`)"
    if not end and b"\r" in first.strip():
        return "text whose lines end in CR; end them in LF"
    if b"\0" in head:
        return "binary, or has NUL bytes; send text"
    return "" if error is None or first[:1] in b"{[" else _BINARY if _CONTROL.search(head) else _PROSE


def _error(text: bytes) -> orjson.JSONDecodeError | None:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error
    return None


def wrong_byte(raw: bytes) -> str:
    """Which byte keeps a text from being UTF-8, and where it is; empty if it is UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        where = _place(raw.decode(errors="replace"), len(raw[: error.start].decode()))
        return f"the byte 0x{raw[error.start]:02x} at {where} is not UTF-8; {_UTF_8} (it may be Latin-1)"
    return ""


def _half_of_a_pair(text: str, at: int) -> str:
    """The first surrogate without its other half from this place on."""
    for found in _ESCAPE.finditer(text, at):
        if found[1] and found[1][0] in "dD" and found[1][1] in "89abcdefABCDEF":
            where = _place(text, found.start())
            return (
                f"{found[0]} at {where} is half of a surrogate pair, which is no character; send the pair, or \\ufffd"
            )
    return ""


def _depth(text: str) -> int:
    """How many brackets are open at the end of a text."""
    bare = _STRING.sub("", text)
    return sum(map(bare.count, "[{")) - sum(map(bare.count, "]}"))


def _place(text: str, at: int) -> str:
    """Text of one line may itself be a line of a file, so it has no line numbers."""
    before = text[:at]
    column = at - before.rfind("\n")
    return f"line {before.count(chr(10)) + 1} column {column}" if "\n" in text.strip() else f"column {column}"
