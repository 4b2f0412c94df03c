"""Whose fault an answer is: the table."""

import pytest

from app.engines.answer_faults import BodyKind, Fault, fault_of, first_line, kind_of

JSON, TEXT, PAGE = BodyKind.JSON, BodyKind.TEXT, BodyKind.PAGE


@pytest.mark.parametrize(
    ("status", "faults"),
    [
        (302, "doubtful doubtful doubtful"),
        (400, "request request doubtful"),
        (401, "doubtful doubtful doubtful"),
        (403, "doubtful doubtful doubtful"),
        (404, "doubtful doubtful doubtful"),
        (405, "doubtful doubtful doubtful"),
        (407, "doubtful doubtful doubtful"),
        (408, "engine engine doubtful"),
        (413, "request request request"),
        (422, "request request doubtful"),
        (429, "full full doubtful"),
        (500, "engine engine doubtful"),
        (501, "request doubtful doubtful"),
        (502, "engine doubtful doubtful"),
        (503, "full doubtful doubtful"),
        (504, "engine doubtful doubtful"),
        (511, "doubtful doubtful doubtful"),
        (522, "engine doubtful doubtful"),
    ],
)
def test_status_and_kind_of_body_say_whose_fault_it_is(status: int, faults: str) -> None:
    assert [fault_of(status, kind).value for kind in (JSON, TEXT, PAGE)] == faults.split()


def test_every_status_is_in_the_table() -> None:
    assert all(isinstance(fault_of(status, kind), Fault) for status in range(100, 600) for kind in BodyKind)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error": "Unauthorized"}', JSON),
        (b'{"detail": "Not Found"}', JSON),
        (b"", TEXT),
        (b"Internal Server Error", TEXT),
        (b'{"choices": [', TEXT),
        (b"\xef\xbb\xbf\r\n<!DOCTYPE html>", PAGE),
        (b'<?xml version="1.0"?><Error/>', PAGE),
    ],
)
def test_a_body_is_judged_by_what_it_is_and_not_by_its_content_type(body: bytes, kind: BodyKind) -> None:
    assert kind_of(body) is kind


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<html>\r\n<head><title>403 Forbidden</title></head>", "403 Forbidden"),
        ("<html><head><style>b {}</style><!-- x --></head><h1>No&nbsp;&amp; no</h1>", "No & no"),
        ("\n\n  upstream   failed \nmore", "upstream failed"),
        ("<html></html>", ""),
        ("", ""),
        ("x" * 500, "x" * 200),
    ],
)
def test_the_first_line_is_what_a_reader_of_the_page_would_see(text: str, line: str) -> None:
    assert first_line(text) == line
