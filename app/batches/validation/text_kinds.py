"""What a text is that is not the JSON that was asked for, by its first bytes or by its form, and what to do. Pure."""

import codecs
import re

import orjson

BOM = b"\xef\xbb\xbf"  # Excel and PowerShell write it before UTF-8
HEAD = 16_384  # bytes that show what a text is

_UTF_8 = "send it as UTF-8"
_PLAIN = "send it uncompressed"
_ITSELF = "send the text itself"
_JSON = "send JSON"
# By their first bytes; a longer beginning stands before a shorter one.
KINDS = (
    (b"\x1f\x8b", f"compressed with gzip; {_PLAIN}"),
    (b"\x28\xb5\x2f\xfd", f"compressed with zstd; {_PLAIN}"),
    (b"BZh", f"compressed with bzip2; {_PLAIN}"),
    (b"\xfd7zXZ\0", f"compressed with xz; {_PLAIN}"),
    (b"\x04\x22\x4d\x18", f"compressed with lz4; {_PLAIN}"),
    (b"x\x9c", f"compressed with zlib; {_PLAIN}"),
    (b"7z\xbc\xaf\x27\x1c", f"a 7z archive; {_ITSELF}"),
    (b"Rar!\x1a\x07", f"a RAR archive; {_ITSELF}"),
    (b"ustar", f"a tar archive; {_ITSELF}"),
    (b"PK\x03\x04", f"a ZIP archive, or an office document such as .xlsx; {_ITSELF}"),
    (b"PK\x05\x06", f"an empty ZIP archive; {_ITSELF}"),
    (b"\xd0\xcf\x11\xe0", f"an old office document, such as .xls; {_ITSELF}"),
    (b"PAR1", f"a Parquet file; {_JSON}"),
    (b"ARROW1", f"an Arrow file; {_JSON}"),
    (b"Obj\x01", f"an Avro file; {_JSON}"),
    (b"SQLite format 3\0", f"an SQLite database; {_JSON}"),
    (b"\x93NUMPY", f"a NumPy array; {_JSON}"),
    (b"\x80\x04\x95", f"a Python pickle; {_JSON}"),
    (b"%PDF-", f"a PDF; {_JSON}"),
    (b"\x89PNG", f"a PNG image; {_JSON}"),
    (b"\xff\xd8", f"a JPEG image; {_JSON}"),
    (b"GIF8", f"a GIF image; {_JSON}"),
    (b"WEBP", f"a WebP image; {_JSON}"),
    (b"WAVE", f"a WAV sound; {_JSON}"),
    (b"ID3\x03", f"an MP3 sound; {_JSON}"),
    (b"ID3\x04", f"an MP3 sound; {_JSON}"),
    (b"OggS", f"an Ogg sound; {_JSON}"),
    (b"ftyp", f"an MP4 video or sound; {_JSON}"),
    (b"\x7fELF", f"a program; {_JSON}"),
    (b"\xff\xfe\0\0", f"text in UTF-32; {_UTF_8}"),
    (b"\0\0\xfe\xff", f"text in UTF-32; {_UTF_8}"),
    (b"\xff\xfe", f"text in UTF-16; {_UTF_8}"),
    (b"\xfe\xff", f"text in UTF-16; {_UTF_8}"),
)
_BEHIND = {b"ustar": 257, b"WEBP": 8, b"WAVE": 8, b"ftyp": 4}  # bytes that stand before such a beginning
BINARY = "binary, or compressed, as with brotli; send text, uncompressed"
NULS = "binary, or has NUL bytes; send text"
ANY_UTF_32 = f"text in UTF-32, or binary; {_UTF_8}"
ANY_UTF_16 = f"text in UTF-16, or binary; {_UTF_8}"
MARKS = "text after two byte order marks; remove them"
_YAML = rb"(?:- .*|[\w.-]+:(?: .*)?|#.*|---.*| .*)?\r?"  # a line
# By what they begin with; no JSON begins so.
FORMS = (
    (rb"<", f"HTML or XML; {_JSON}"),
    (rb"```", "a code block of Markdown; send only what is inside of it"),
    (rb"data: ?[\[{]|event: ?[\w.]+\r?\n", f"a stream of server-sent events; {_JSON}"),
    (rb"--[^\r\n]+\r?\n[Cc]ontent-", f"a multipart form; {_JSON}"),
    (rb"@?[\w./\\-]+\.(?:json|jsonl|ndjson)\s*\Z", "the name of a file; send what is in it (curl: `--data-binary @FILE`)"),
    (rb"'[\[{]", "JSON within single quotes, as a shell has it; leave these quotes out"),
    (rb"\[object \w+\]", "what JavaScript writes for any object; send JSON.stringify(OBJECT)"),
    (rb"%7[Bb]|%5[Bb]", "URL-encoded; send it as it is"),
    (rb"eyJ[\w+/=-]+\s*\Z", "JSON in base64; decode it"),
    (rb"[\w.%\[\]-]+=\S*(?:&|\s*\Z)", f"a form, name=value; {_JSON}"),
    (rb"(?:\[+[\w. -]+\]+\s*\n)?[\w.-]+ *= ?", f"TOML, or other lines of name = value; {_JSON}"),
    (rb"---\s*\n|%YAML|(?=- |[\w.-]+:(?:\s|\Z))(?:" + _YAML + rb"\n)*" + _YAML + rb"\Z", f"YAML; {_JSON}"),
)  # fmt: skip
_FORMS = tuple((re.compile(begin), what) for begin, what in FORMS)
ARRAY = "one JSON array; put each of its elements on a line of its own, without a comma (`jq -c '.[]' FILE`)"
PRETTY = "JSON over several lines; put each request on one line (`jq -c . FILE`)"
CR_ENDS = "text whose lines end in CR; end them in LF"
PROSE = "plain text, such as CSV; put a JSON object on each line"
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")  # a character that text has not, except within a string by mistake


def no_text(head: bytes) -> str:
    """What is no UTF-8 and begins like this, and what to do: "text in UTF-16; send it as UTF-8". Empty: it may be UTF-8."""
    for begin, what in KINDS:
        if head.startswith(begin, _BEHIND.get(begin, 0)):
            return what
    if b"\0\0\0" in (head[:3], head[1:4]):
        return ANY_UTF_32
    if b"\0" in head[:2]:  # each text of JSON begins with ASCII
        return ANY_UTF_16
    return BINARY if _CONTROL.search(head) and not _is_utf8(head) else ""


def foreign(head: bytes) -> str:
    """What a text is that begins like this, and what to do. Empty: it may be JSON."""
    text = head.lstrip()
    return no_text(head) or next((what for begin, what in _FORMS if begin.match(text)), "")


def of_file(head: bytes) -> str:
    """What a file is that is no lines of JSON, and what to do; empty: not known. `head`: its beginning, without a BOM."""
    if head.startswith(BOM):
        return MARKS
    return foreign(head) or _no_lines(head)


def _no_lines(head: bytes) -> str:
    first, end, rest = head.lstrip().partition(b"\n")
    error = _error(first.rstrip())
    if first.startswith(b"[") and (error or not rest.strip()):
        return ARRAY
    if first.startswith(b"{") and end and error and 0 < len(error.doc) <= error.pos:
        return PRETTY
    if not end and b"\r" in first.strip():
        return CR_ENDS
    if b"\0" in head:
        return NULS
    if error is None or first[:1] in b"{[" or not _is_utf8(first + end):
        return ""
    return BINARY if _CONTROL.search(head) else PROSE


def _error(text: bytes) -> orjson.JSONDecodeError | None:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return error
    return None


def _is_utf8(head: bytes) -> bool:
    """Whether a text that begins like this may be UTF-8: its last character may be cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
