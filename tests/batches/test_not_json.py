"""Claims about texts that are no JSON: what is wrong, where, and what to do is said of each."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.batches.validation import not_json, strict_json, text_kinds
from app.cli import input_files
from app.user_errors import Failure
from tests.wrong_texts import FILES, FORMS, TEXTS

GOOD = r'{"a":"b\n","c":[{"d":-1.5e3},true,null],"e":{}}'
SIGNS = "\"'\\,:;{}[]()x0-+.#=&<\n\t\0\u00a0"
PLACE = re.compile(r" \((?:line \d+ )?column \d+(?:, U\+[0-9A-F]{4})?\)\Z")


def told(text: str) -> str:
    """What is said of a text, which is JSON if that is empty."""
    try:
        strict_json.loads(text.encode())
    except strict_json.JsonError as error:
        return error.reason
    return ""


@pytest.mark.parametrize(("said", "text"), [(said, text) for said, texts in TEXTS.items() for text in texts])
def test_each_fault_is_called_what_it_is(said: str, text: str) -> None:
    whole = told(text)
    assert PLACE.sub("", whole) == said
    assert PLACE.search(whole) or said in (not_json.EMPTY, not_json.MARK, not_json.MARKS)


def test_every_fault_is_shown_by_a_text_and_has_a_remedy() -> None:
    assert set(TEXTS) == set(not_json.FAULTS)
    assert [said for said in (*TEXTS, *all_kinds()) if "; " not in said] == []


def all_kinds() -> Iterator[str]:
    yield from (what for _, what in (*text_kinds.KINDS, *text_kinds.FORMS))
    yield from filter(None, FILES)


def broken() -> Iterator[str]:
    """A good text without each of its characters, with another in its place, and with one more before it."""
    for at in range(len(GOOD)):
        yield GOOD[:at] + GOOD[at + 1 :]
        yield GOOD[:at]
        for sign in SIGNS:
            yield GOOD[:at] + sign + GOOD[at + 1 :]
            yield GOOD[:at] + sign + GOOD[at:]


def test_nothing_that_is_broken_in_a_good_text_is_told_in_the_parsers_words() -> None:
    known = {*not_json.FAULTS, *(f"it is {what}" for what in all_kinds())}
    found = {PLACE.sub("", told(text)) for text in broken()} - {""}
    assert {said for said in found if said not in known and "occurs twice" not in said and "u0000" not in said} == set()
    assert len(found) > 20


def test_a_place_is_a_column_and_in_several_lines_a_line() -> None:
    assert told('{"é": 1 "b": 2}').endswith(" (column 9)")
    assert told('{\n"a": 1\n "b": 2}').endswith(" (line 3 column 2)")
    assert told('{"a": 1,\n "b":\xa02}').endswith(" (line 2 column 6, U+00A0)")


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in FORMS.items() for text in texts])
def test_a_text_of_another_form_is_called_by_its_name(what: str, text: str) -> None:
    assert told(text).startswith(f"it is {what}")


def test_every_form_is_shown_by_a_text() -> None:
    said = [what for _, what in text_kinds.FORMS]
    assert [what for what, name in zip(said, FORMS, strict=True) if not what.startswith(name)] == []


def test_what_begins_as_another_kind_of_file_is_called_by_its_name_in_a_body_and_in_a_file(tmp_path: Path) -> None:
    for begin, what in text_kinds.KINDS:
        content = b"ftyp".rjust(8, b"\0") if begin == b"ftyp" else begin
        content = (
            begin.rjust({b"ustar": 262, b"WEBP": 12, b"WAVE": 12}.get(begin, 0), b"x") if content == begin else content
        )
        with pytest.raises(strict_json.JsonError, match=re.escape(f"it is {what}")):
            strict_json.loads(content)
        assert text_kinds.of_file(content) == what
        for name in ("in.jsonl", "in"):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(Failure, match=re.escape(f"{name} is {what}.")):
                input_files.kind_of(tmp_path / name)


@pytest.mark.parametrize(("said", "content"), [(said, each) for said, contents in FILES.items() for each in contents])
def test_a_file_that_is_no_lines_is_called_what_it_is(said: str, content: bytes) -> None:
    assert text_kinds.of_file(content) == said
