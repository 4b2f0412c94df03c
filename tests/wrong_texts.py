"""Texts that are no JSON, each with what is said of it. docs/errors.md shows them."""

import gzip

from app.batches.validation import not_json as faults
from app.batches.validation import text_kinds as kinds
from app.batches.validation.not_json import REMEDIES, SIGNS, WORDS

LINE = '{"custom_id": "1", "body": {}}'

# By what is wrong at one place: the shortest texts that have it.
TEXTS = {
    faults.EMPTY: ("", " \n"),
    faults.MARK: ('\ufeff{"a": 1}',),
    faults.MARKS: ('\ufeff\ufeff{"a": 1}',),
    faults.NO_COMMA: ('{"a": 1 "b": 2}', "[1 2]", '[{} {}]', '{"a": "b" "c"}', "[true false]"),
    faults.NO_COLON: ('{"a" 1}', '{"a" "b"}', '{"a" {}}'),
    faults.EQUALS: ('{"a" = 1}', '{"a" => 1}'),
    faults.NO_VALUE: ('{"a"}', '{"a":}', '{"a":, "b": 2}'),
    faults.NO_KEY: ('{: 1}', '{[1]}', '{{"a": 1}}'),
    faults.BARE_KEY: ("{a: 1}", "{1: 2}"),
    faults.BARE_WORD: ('{"a": yes}', '{"a": truely}', "Hello there"),
    faults.QUOTES: ("{'a': 1}", "{\"a\": 'b'}", "{“a”: 1}", '{"a": `b`}', '{"a": «b»}'),
    faults.INNER_QUOTE: ('{"a": "say "hi" now"}', '{"a": "b, "c": 1}', '{"a": """b"""}', '{"a"b": 1}'),
    faults.CUT: ('{"a": 1', '{"a": [1', "[1,", "tr"),
    faults.CUT_STRING: ('{"a": "b}', '{"a: 1}'),
    faults.NO_BRACKET: ('{"a": [1}', "[}"),
    faults.NO_BRACE: ('[{"a": 1]', "{]"),
    faults.NOT_OPENED: ('{"a": 1}}', "]"),
    faults.LAST_COMMA: ('{"a": 1,}', "[1,]"),
    faults.SPARE_COMMA: ("[1,, 2]", '{, "a": 1}', '{"a": 1,, "b": 2}'),
    faults.SPARE_COLON: ('{"a":: 1}', '{"a": "b": "c"}'),
    faults.COLON_IN_ARRAY: ('["a": 1]',),
    faults.NO_OBJECT: ('"a": 1',),
    faults.SEMICOLON: ('{"a": 1; "b": 2}', "[1; 2]"),
    faults.AFTER: ('{"a": 1} {"b": 2}', '{"a": 1};'),
    faults.AFTER_COMMA: ('{"a": 1},',),
    faults.COMMENT: ('{"a": 1 // b', '{"a": /* b */ 1}', '{"a": 1} # b'),
    faults.INVISIBLE: ('{"a":\u00a01}', '{\u200b"a": 1}', '\x1e{"a": 1}'),
    SIGNS["\\"]: (r'{\"a\": 1}',),
    REMEDIES["control character"]: ('{"a": "b\nc"}', '{"a": "b\tc"}'),
    REMEDIES["escaped"]: (r'{"a": "C:\dir"}', r'{"a": "\xe9"}', r'''{"a": "it\'s"}''', r'{"a": "\u12"}'),
    REMEDIES["leading zero"]: ('{"a": 01}', '{"a": -01}'),
    REMEDIES["after decimal point"]: ('{"a": 5.}',),
    REMEDIES["after exponent"]: ('{"a": 1e}', '{"a": 1e+}'),
    REMEDIES["infinity"]: ("[1e999,]",),  # in JSON, strict_json names the field
    faults.POINT_FIRST: ('{"a": .5}', '{"a": -.5}'),
    faults.PLUS: ('{"a": +1}',),
    faults.NO_DIGIT: ('{"a": -x}', '{"a": --1}'),
    faults.NUMBER: (
        '{"a": 0x1F}', '{"a": 1_000}', '{"a": 1,000}', '{"a": 2026-01-31}', '{"a": 12:30}', '{"a": 5s}', '{"a": 50%}',
    ),
    **{said: (f'{{"a": {word}}}',) for word, said in WORDS.items()},
    SIGNS["..."]: ("[1, ...]", '{"a": …}'),
    SIGNS["("]: ('{"a": (1, 2)}',),
    faults.PLACEHOLDER: ('{"a": {{b}}}', '{"a": ${b}}', '{"a": <b>}'),
    faults.EXPRESSION: ('{"a": "b" + "c"}',),
    faults.NO_VALUE_THERE: ('{"a": €5}', '{"a": *}'),
    faults.NO_ENTRY_END: ('{"a": null!}',),
}  # fmt: skip

# By what the whole is.
FORMS = {
    "HTML or XML": ("<!doctype html><html>", '<?xml version="1.0"?><a/>'),
    "a code block of Markdown": ("```json\n{}\n```",),
    "a stream of server-sent events": ('data: {"a": 1}\n\n', "event: a\ndata: {}\n\n"),
    "a multipart form": ('--x\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n--x--',),
    "the name of a file": ("@body.json", "/tmp/batch.jsonl"),
    "JSON within single quotes": ("'{\"a\": 1}'",),
    "what JavaScript writes": ("[object Object]",),
    "URL-encoded": ("%7B%22a%22%3A1%7D",),
    "JSON in base64": ("eyJhIjoxfQ==",),
    "a form": ("model=m&prompt=hi", "prompt=hi"),
    "TOML": ('model = "m"\n', "[batch]\nname = 1\n"),
    "YAML": ("model: m\nmessages:\n  - role: user\n\n# b\n", "---\na: 1\n", "- a\n- b\n", "a: 1"),
}

# By what a file is that shall have one JSON object on each line. It begins behind its byte order mark.
FILES = {
    kinds.ARRAY: (b"[{}, {}]", b"[\n{},\n{}\n]", b"[{}]x\n"),
    kinds.PRETTY: (b'{\n  "a": 1\n}\n',),
    kinds.CR_ENDS: (b"{}\r{}\r",),
    kinds.MARKS: (kinds.BOM + b"{}\n",),
    kinds.NULS: (b"ab\0c\n",),
    kinds.BINARY: (b"\x0b\x02\x80{}\n\x03", b"a\x01b\n"),
    kinds.PROSE: (b"id,text\n1,x\n", b'"id","text"\n', b"1,x\n", b"Hello there\n"),
    kinds.ANY_UTF_16: (LINE.encode("utf-16-le"),),
    kinds.ANY_UTF_32: (LINE.encode("utf-32-be"),),
    "compressed with gzip; send it uncompressed": (gzip.compress(LINE.encode(), mtime=0),),
    "a JPEG image; send JSON": (b"\xff\xd8", b"\xff\xd8\xff\xe0\0\x10JFIF\0"),
    "": (b"{}\n{}\n", b'{"a": "\xe9"}\n', b"caf\xe9\n", b"[1]\n[2]\n"),
}
