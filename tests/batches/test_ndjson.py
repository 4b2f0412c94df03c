"""How a stream of bytes is split into lines."""

import orjson
import pytest

from app.batches.intake.ndjson import LineSplitter, unbroken

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


def test_a_line_that_we_write_is_one_line_for_readers_that_end_lines_elsewhere() -> None:
    said = {"text": "".join(map(chr, range(1, 0x3000)))}
    [line] = unbroken(orjson.dumps(said) + b"\n").decode().splitlines()
    assert orjson.loads(line) == said
