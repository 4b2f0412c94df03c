"""What comes from outside is read in time linear in its length, whatever it is."""

from collections.abc import Callable
from typing import Any

import pytest

from app.batches.intake.ndjson import LineSplitter
from app.batches.validation import strict_json
from app.detection.detectors import BUILT_IN_KINDS, Detectors
from tests.linear import growth


def in_blocks(feed: Callable[[Any], object], size: int) -> Callable[[Any], object]:
    def run(given: Any) -> object:
        return [feed(given[at : at + size]) for at in range(0, len(given), size)]

    return run


def read(raw):
    try:
        return strict_json.loads(raw)
    except strict_json.JsonError:
        return None


FIND = Detectors(BUILT_IN_KINDS, {}).find
CASES = {
    "a": (FIND, lambda n: b"4000000000000-" * n),
    "b": (FIND, lambda n: b"AKIA2345678901234567." * n + b"@b.cc"),
    "c": (FIND, lambda n: b"aa00aaaaaaaaaaaaaa " * n),
    "d": (FIND, lambda n: b"a@b.cc.1." * n),
    "e": (FIND, lambda n: b"-----BEGIN " * n),
    "f": (FIND, lambda n: b"eyJabcdefghijk.eyJ" * n),
    "dup": (read, lambda n: b"{" + b",".join(b'"%d":0' % i for i in range(n)) + b',"n":0,"n":0}'),
    "split": (lambda raw: in_blocks(LineSplitter(1 << 40).feed, 100)(raw), lambda n: b"a" * n),
}


@pytest.mark.parametrize("name", CASES)
def test_linear(name):
    run, make = CASES[name]
    g = growth(run, make)
    print(name, g)
    assert g < 3
