"""The name of an uploaded file: kept as it was sent, or refused with the reason. Pure."""

import re
from urllib.parse import unquote_to_bytes

from app.errors import BadInput

LONGEST = 255  # characters
_PARAMETER = re.compile(rb';[ \t]*+([^\s;="]++)[ \t]*+=[ \t]*+("(?:[^"\\]|\\.)*+"|(?!")[^;]*+)[ \t]*+', re.DOTALL)
_ESCAPE = re.compile(rb'\\(["\\])|%(22|0D|0A)')  # those of quoted strings, and those that browsers make instead
_CHARSETS = {b"utf-8": "utf-8", b"iso-8859-1": "latin-1"}


def parameters(disposition: bytes, field: str) -> dict[str, bytes]:
    """The parameters of the Content-Disposition of a part of a form, by their names in small letters, with quotes and escapes
    undone. Raises BadInput; `field`: the field that its message names.
    """
    found: dict[str, bytes] = {}
    at = disposition.find(b";")
    while at >= 0 and (each := _PARAMETER.match(disposition, at)):
        name, at = each[1].decode("latin-1").lower(), each.end()
        if name in found:
            raise _wrong(field, f"Content-Disposition has {name[:60]} twice; send it once")
        found[name] = _unquoted(each[2])
    if at >= 0 and disposition[at:].strip(b"; \t"):
        raise _wrong(field, "Content-Disposition has a quote without its end, or is no list of NAME=VALUE; correct it")
    return found


def among(given: dict[str, bytes], field: str) -> str | None:
    """The name among the `parameters` of a part. None: it has none. Raises BadInput.

    RFC 7578 wants no `filename*`, but some clients send it, alone or beside a name in ASCII; it comes first (RFC 5987).
    """
    if pieces := [name for name in given if name.startswith("filename*") and name != "filename*"]:
        raise _wrong(field, f"{pieces[0][:60]}: a name in pieces (RFC 2231) is not read; send it whole, as filename")
    if "filename*" in given:
        return checked(_extended(given["filename*"], field), field)
    if "filename" not in given:
        return None
    try:
        return checked(given["filename"].decode(), field)
    except UnicodeDecodeError as error:
        byte = given["filename"][error.start]
        raise _wrong(field, f"filename has the byte 0x{byte:02x}, which is not UTF-8; send the name in UTF-8") from None


def checked(name: str, field: str) -> str:
    """The name. Raises BadInput where it cannot be kept as it is."""
    if "\0" in name:
        raise _wrong(field, "the name of the file has a NUL character, which cannot be stored; leave it out")
    if len(name) > LONGEST:
        raise _wrong(field, f"the name of the file has {len(name)} characters; shorten it to {LONGEST}")
    return name


def _unquoted(value: bytes) -> bytes:
    if not value.startswith(b'"'):
        return value.strip(b" \t")
    return _ESCAPE.sub(lambda found: found[1] or bytes.fromhex(found[2].decode()), value[1:-1])


def _extended(value: bytes, field: str) -> str:
    charset, _, rest = value.partition(b"'")
    _, quote, text = rest.partition(b"'")
    try:
        if quote:
            return unquote_to_bytes(text).decode(_CHARSETS[charset.lower()])
    except (KeyError, UnicodeDecodeError):
        pass
    raise _wrong(field, "filename* must be in UTF-8 or ISO-8859-1, and say which, as in UTF-8''caf%C3%A9.jsonl")


def _wrong(field: str, message: str) -> BadInput:
    return BadInput(f"{field}: {message}", param=field)
