"""Why a text is not JSON; where; and how to make it JSON. Pure.

orjson says what it expected, and where. What stands there, and around it, shows what was meant.
"""

import re
from typing import Any

import orjson

from app.batches.validation.text_kinds import BOM, HEAD, foreign

DEEPEST = 64  # levels; no request needs more
TOO_DEEP = f"nested deeper than {DEEPEST} levels, the limit"
EMPTY = "it is empty; send a JSON value"
MARK = "it begins with a byte order mark; remove it"
MARKS = "it begins with two byte order marks; remove both"

# What other languages write, at the place where a value, a key or a comma was expected.
QUOTES = "single or curly quotes; put strings and keys in double quotes"
COMMENT = "a comment, which JSON does not have; remove it"
PLACEHOLDER = "a placeholder that was not filled in; put its value there"
ELLIPSIS = "an ellipsis; write what it stands for"
NUMBER_WORD = "{} is not JSON; send a number or null"
WORDS = {
    "NaN": NUMBER_WORD.format("NaN"),
    "nan": NUMBER_WORD.format("nan"),
    "-Infinity": NUMBER_WORD.format("-Infinity"),
    "Infinity": NUMBER_WORD.format("Infinity"),
    "None": "None is not JSON; send null",
    "nil": "nil is not JSON; send null",
    "NULL": "NULL is not JSON; send null",
    "undefined": "undefined is not JSON; send null, or leave the key out",
    "True": "True is not JSON; send true",
    "TRUE": "TRUE is not JSON; send true",
    "False": "False is not JSON; send false",
    "FALSE": "FALSE is not JSON; send false",
}
SIGNS = {
    "//": COMMENT,
    "/*": COMMENT,
    "#": COMMENT,
    "...": ELLIPSIS,
    "\N{HORIZONTAL ELLIPSIS}": ELLIPSIS,
    "${": PLACEHOLDER,
    "<": PLACEHOLDER,
    "(": "a tuple in parentheses; make it an array in brackets, []",
    "\\": "a backslash outside of a string; send the text as it was before it was escaped",
} | dict.fromkeys("'`\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\N{DOUBLE LOW-9 QUOTATION MARK}"
                  "\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}«»", QUOTES)  # fmt: skip

# What is wrong, and what to do.
BARE_WORD = "a word without quotes; put strings in double quotes"
NO_KEY = "a value without a key; put a key in double quotes before it"
BARE_KEY = "a key without quotes; put it in double quotes"
INNER_QUOTE = 'a double quote within a string, or a string that is not closed; write \\" within a string'
INVISIBLE = "an invisible character; remove it"
NO_COMMA = "a missing comma; put one between two entries"
NO_COLON = "a missing colon; put one between a key and its value"
EQUALS = "an equals sign after a key; put a colon there"
NO_VALUE = "a key without a value; put a colon and a value behind it, or remove it"
SPARE_COMMA = "a comma without an entry before it; remove it"
LAST_COMMA = "a comma after the last entry; remove it"
SPARE_COLON = "a colon too many; remove it"
COLON_IN_ARRAY = "a colon in an array; put keys and their values in an object, {}"
SEMICOLON = "a semicolon between entries; put a comma"
NO_BRACE = "] where } was expected; close the object first"
NO_BRACKET = "} where ] was expected; close the array first"
NOT_OPENED = "a closing bracket that closes nothing; remove it"
EXPRESSION = "an expression, which JSON does not have; write its result"
NO_OBJECT = "a key and a value without an object around them; put them in {}"
AFTER_COMMA = "there is more after the end of the value; remove the comma"
AFTER = "there is more after the end of the value; send one value"
CUT = "it ends before it is complete; close what is open, or send all of it"
CUT_STRING = "it ends within a string; close the string with a double quote, or send all of it"
NO_VALUE_THERE = "not a value; put a string in double quotes, a number, true, false, null, an array or an object there"
NO_ENTRY_END = "not the end of an entry; put a comma, or close the array or the object"
# Numbers that are none in JSON.
NUMBER = "a number in a form that JSON does not have; write it in decimal digits, or put it in double quotes"
PLUS = "a number with a plus sign; leave the sign out"
POINT_FIRST = "a number that begins with its point; put a 0 before it"
NO_DIGIT = "a minus sign without a digit behind it; complete the number, or put the text in double quotes"
# Of orjson's messages: what is always meant by them.
REMEDIES = {
    "input data is empty": EMPTY,
    "control character": "a line break or another control character in a string; write it as an escape (\\n, \\t, \\u001b)",
    "escaped": "an invalid escape in a string; write \\\\ for a backslash, \\u00e9 for \\xe9, and ' without one",
    "trailing comma": LAST_COMMA,
    "infinity": "a number beyond the range of a double; send it as a string",
    "leading zero": "a number with a leading zero; leave the zero out, or put the number in double quotes",
    "after decimal point": "a number without a digit after its point; put one there",
    "after exponent": "a number without a digit in its exponent; put one there",
}
FAULTS = (
    BARE_WORD, BARE_KEY, NO_KEY, QUOTES, INNER_QUOTE, INVISIBLE, NO_COMMA, NO_COLON, EQUALS, NO_VALUE, SPARE_COMMA, AFTER_COMMA,
    SPARE_COLON, COLON_IN_ARRAY, SEMICOLON, NO_BRACE, NO_BRACKET, NOT_OPENED, EXPRESSION, NO_OBJECT, AFTER, CUT, CUT_STRING,
    NO_VALUE_THERE, NO_ENTRY_END, NUMBER, PLUS, POINT_FIRST, NO_DIGIT, EMPTY, MARK, MARKS,
    *dict.fromkeys((*WORDS.values(), *SIGNS.values(), PLACEHOLDER, *REMEDIES.values())),
)  # fmt: skip

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u(....)|.)", re.DOTALL)
_WHOLE_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_WORD = re.compile(r"-?[^\W\d]\w*")
_PLACEHOLDER = re.compile(r"\{\{\s*\w")
_WORD_BEGINS = re.compile(r"[^\W\d]|[$@]")
_IN_NUMBER = re.compile(r"(?:^|[\s,:\[])[-+]?\d[\w.:%+-]*\Z")  # what stands before a place in the middle of a number
_MINUTES = re.compile(r":\d")
_GROUP = re.compile(r"\d,\Z")
_AROUND = 64  # characters before and behind a place that show what was meant
_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}


def kind(value: Any) -> str:
    """What a value of JSON is: "an array"."""
    return _NAMES.get(type(value), "a number")


def reason(raw: bytes, error: orjson.JSONDecodeError) -> str:
    """Why orjson refuses a text, with the place and the remedy where they are known."""
    if not raw.strip():
        return EMPTY
    if what := foreign(raw[:HEAD].removeprefix(BOM)):
        return f"it is {what}"
    if raw.startswith(BOM):
        return MARKS if raw.startswith(BOM + BOM) else MARK
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
    if found := next((remedy for part, remedy in REMEDIES.items() if part in said), ""):
        return found
    if at >= len(text):
        return CUT_STRING if '"' in _WHOLE_STRING.sub("", text) else CUT
    if "after document" in said:
        return _after_the_end(text[at:].rstrip())
    before, rest = text[max(0, at - _AROUND) : at], text[at : at + _AROUND]
    return _of_another_language(text, at) or _at_character(before, rest, said)


def _at_character(before: str, rest: str, said: str) -> str:
    """What is wrong with the first character of the rest, of which orjson has said this."""
    if not rest[0].isprintable():
        return INVISIBLE
    if "after sign" in said:
        return {"+": PLUS, ".": POINT_FIRST}.get(rest[0], NO_DIGIT)
    if "string key" in said:
        return _at_key(before, rest[0])
    if "after key" in said:
        return _behind_key(before, rest[0])
    return _behind_value(before, rest, "']'" in said) if "expected ','" in said else _at_value(before, rest[0])


def _of_another_language(text: str, at: int) -> str:
    """What other languages write there, and what to write instead. Empty: it is nothing of them."""
    word = _WORD.match(text, at - 1 if text.startswith("-", max(0, at - 1)) else at)
    if word and word[0] in WORDS:
        return WORDS[word[0]]
    if _PLACEHOLDER.match(text, max(0, at - 1)):  # whose first brace began an object
        return PLACEHOLDER
    return next((said for sign, said in SIGNS.items() if text.startswith(sign, at)), "")


def _after_the_end(rest: str) -> str:
    """What is wrong with what follows the value."""
    if rest.startswith(("//", "/*", "#")):
        return COMMENT
    if rest == ",":
        return AFTER_COMMA
    return {"]": NOT_OPENED, "}": NOT_OPENED, ":": NO_OBJECT}.get(rest[0], AFTER)


def _at_key(before: str, char: str) -> str:
    """What is wrong with this character, where a key was expected."""
    if char.isdigit() and _GROUP.search(before):
        return NUMBER
    return {",": SPARE_COMMA, "]": NO_BRACE, ":": NO_KEY, "{": NO_KEY, "[": NO_KEY}.get(char, BARE_KEY)


def _at_value(before: str, char: str) -> str:
    """What is wrong with this character, where a value was expected."""
    last = before.rstrip()[-1:]
    if char in ",}]" and last == ":":
        return NO_VALUE
    signs = {",": SPARE_COMMA, ":": SPARE_COLON, "]": NOT_OPENED, "}": NO_BRACKET if last == "[" else NOT_OPENED}
    return signs.get(char) or (BARE_WORD if _WORD_BEGINS.match(char) else NO_VALUE_THERE)


def _behind_key(before: str, char: str) -> str:
    """What is wrong with this character, where the colon after a key was expected."""
    if before[-1:] == '"' and char.isalnum():
        return INNER_QUOTE
    return {"=": EQUALS, "}": NO_VALUE, ",": NO_VALUE}.get(char, NO_COLON)


def _behind_value(before: str, rest: str, in_array: bool) -> str:
    """What is wrong with the beginning of the rest, where a comma or the end of an array or an object was expected."""
    char = rest[0]
    if _IN_NUMBER.search(before) and (char not in ';:}]"' or _MINUTES.match(rest)):
        return NUMBER
    signs = {
        ";": SEMICOLON,
        "+": EXPRESSION,
        "}": NO_BRACKET,
        "]": NO_BRACE,
        ":": COLON_IN_ARRAY if in_array else SPARE_COLON,
    }
    if char in signs:
        return signs[char]
    if before.rstrip()[-1:] == '"' and (char not in '"[{' or before[-1:] == '"'):
        return INNER_QUOTE
    if before[-1:].isalpha() and char.isalnum():
        return BARE_WORD
    return NO_COMMA if char in '"[{-' or char.isalnum() else NO_ENTRY_END


def wrong_byte(raw: bytes) -> str:
    """Which byte keeps a text from being UTF-8, and where it is; empty if it is UTF-8."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        where = _place(raw.decode(errors="replace"), len(raw[: error.start].decode()))
        return f"the byte 0x{raw[error.start]:02x} at {where} is not UTF-8; send it as UTF-8 (it may be Latin-1)"
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
    before, char = text[:at], text[at : at + 1]
    column = at - before.rfind("\n")
    shown = "" if char.isprintable() else f", U+{ord(char):04X}"
    return (f"line {before.count(chr(10)) + 1} column {column}" if "\n" in text.strip() else f"column {column}") + shown
