"""How a stream of bytes is split into lines."""

import pytest

from app.batches.intake.ndjson import LineSplitter

BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("size", [1, 2, 4, 100])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_byte_order_mark_is_no_part_of_the_first_line_however_it_arrives(size: int, end: bytes) -> None:
    for lines in ([b"{}"], [b"{}", BOM + b"{}"]):
        content, splitter = BOM + b"\n".join(lines) + end, LineSplitter(100)
        found = [
            line for start in range(0, len(content), size) for line in splitter.feed(content[start : start + size])
        ]
        assert found + splitter.close() == lines
