"""The control page carries both ways between processes and between versions, whole or not at all."""

import zlib
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from itertools import pairwise
from pathlib import Path
from struct import Struct, pack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harvest.commands import COMMANDS
from workers.engine import control_page
from workers.engine.control_page import (
    FIELDS,
    FIRST_LAYOUT,
    KEPT_LAYOUTS,
    LAYOUT,
    MAGIC,
    TOO_NEW,
    TOO_OLD,
    UNKNOWN,
    Commands,
    ControlPage,
    PageError,
    Report,
    Weights,
    blank,
)

ENGINE = b"an engin"
REPORT = Report(at=7.5, steps=7, trusted=True, sync_running=3, step_seconds=0.031, model_samples=99, planning=True)
WEIGHTS = Weights(1, 2, 3, 4, 5)
# The fields of the first layout with a header, in order. They never change: a later layout only appends.
FIRST_FIELDS = {
    Commands: "itl_budget itl_stretch itl_ceiling idle_step idle_stretch tolerance urgency chunk kv_reserve error "
    "heartbeat harvest",
    Report: "at steps supported tripped silent trusted sync_running sync_waiting batch_running batch_frozen batch_waiting "
    "evictions freezes faults sync_tokens batch_tokens step_seconds predicted_seconds allowed_seconds plan_seconds "
    "kv_usage model_error model_samples planning",
    Weights: "base below per_context bend knee",
}


@pytest.fixture
def page(tmp_path: Path) -> Iterator[ControlPage]:
    page = new_page(tmp_path)
    yield page
    page.close()


def new_page(folder: Path, content: bytes | None = None) -> ControlPage:
    path = folder / "page"
    path.write_bytes(blank(3, ENGINE) if content is None else content)
    return ControlPage(path)


def record(layout: int, values: list[float]) -> bytes:
    """A record by hand, as its writer leaves it."""
    body = Struct(f"<HH{len(values)}d").pack(layout, len(values), *values)
    return body + zlib.crc32(body).to_bytes(4, "little")


def by_hand(layout: int, report: list[float], rooms: tuple[int, int, int] = (1024, 2048, 256)) -> bytes:
    """A page by hand, of any layout: the header of 64 bytes, then commands, report and weights in their rooms."""
    header = pack("<8sHH8sHHH", MAGIC, layout, 0, ENGINE, *rooms)
    header += zlib.crc32(header).to_bytes(4, "little")
    return b"".join(
        [
            header.ljust(64, b"\0"),
            record(layout, [0.5] * 12).ljust(rooms[0], b"\0"),
            record(layout, report).ljust(rooms[1], b"\0"),
            record(layout, [1, 2, 3, 4, 5]).ljust(rooms[2], b"\0"),
        ]
    )


def test_a_new_page_says_whose_it_is_and_has_no_records(page: ControlPage) -> None:
    assert (page.rank, page.engine) == (3, ENGINE)
    assert (page.commands(), page.report(), page.learnt()) == (None, None, None)


def test_what_one_side_writes_the_other_reads(page: ControlPage, tmp_path: Path) -> None:
    other = ControlPage(tmp_path / "page")
    page.command(replace(COMMANDS, itl_budget=0.031, chunk=99, harvest=False))
    other.publish(REPORT, WEIGHTS)
    found = other.commands()
    assert found is not None
    assert found == replace(COMMANDS, itl_budget=0.031, chunk=99, harvest=False, heartbeat=found.heartbeat)
    assert found.heartbeat > 0
    assert (page.report(), page.learnt()) == (REPORT, WEIGHTS)
    other.close()


@settings(deadline=None)
@given(offset=st.integers(0, 63 + 1024 + 2048 + 256), flipped=st.integers(1, 255), torn=st.booleans())
def test_a_page_with_any_damage_never_gives_a_wrong_record(
    tmp_path_factory: pytest.TempPathFactory, offset: int, flipped: int, torn: bool
) -> None:
    folder = tmp_path_factory.mktemp("page")
    page = new_page(folder)
    page.command(COMMANDS)
    commands = page.commands()
    page.publish(REPORT, WEIGHTS)
    page.close()
    content = bytearray((folder / "page").read_bytes())
    if torn:
        content[offset:] = bytes(len(content) - offset)
    else:
        content[offset] ^= flipped
    try:
        damaged = new_page(folder, bytes(content))
    except PageError:
        return
    assert damaged.commands() in {None, commands}
    assert damaged.report() in [None, REPORT]
    assert damaged.learnt() in {None, WEIGHTS}
    damaged.close()


@settings(deadline=None)
@given(
    newer=st.integers(0, KEPT_LAYOUTS),
    report=st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=0, max_size=60),
)
def test_fields_that_a_reader_does_not_know_are_left_and_those_that_are_missing_have_their_defaults(
    tmp_path_factory: pytest.TempPathFactory, newer: int, report: list[float]
) -> None:
    page = new_page(tmp_path_factory.mktemp("page"), by_hand(LAYOUT + newer, report, (2048, 3000, 512)))
    found = page.report()
    assert found is not None
    for (name, default), value in zip(REPORT_DEFAULTS.items(), [*report, *[None] * 60], strict=False):
        assert getattr(found, name) == (default if value is None else type(default)(value))
    assert page.commands() is not None
    assert page.learnt() == WEIGHTS
    page.command(COMMANDS)  # its records are where that page has its rooms
    assert (page.report(), page.learnt()) == (found, WEIGHTS)
    page.close()


REPORT_DEFAULTS = {field.name: field.default for field in fields(Report)}


@pytest.mark.parametrize(("ahead", "code"), [(0, None), (1, None), (2, None), (3, TOO_OLD)])
def test_a_page_of_two_layouts_back_is_read_and_an_older_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int, code: str | None
) -> None:
    content = by_hand(FIRST_LAYOUT, [1.0, 2.0])
    monkeypatch.setattr(control_page, "LAYOUT", FIRST_LAYOUT + ahead)
    if code is None:
        page = new_page(tmp_path, content)
        assert page.report() == Report(at=1.0, steps=2)
        page.close()
        return
    with pytest.raises(PageError) as caught:
        new_page(tmp_path, content)
    assert caught.value.code == code


def test_a_page_whose_scheduler_would_refuse_our_commands_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PageError) as caught:
        new_page(tmp_path, by_hand(LAYOUT + KEPT_LAYOUTS + 1, []))
    assert caught.value.code == TOO_NEW


@pytest.mark.parametrize(("behind", "too_old"), [(0, False), (2, False), (3, True)])
def test_commands_of_a_worker_that_is_too_old_are_no_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: int, too_old: bool
) -> None:
    content = by_hand(LAYOUT, [])
    monkeypatch.setattr(control_page, "LAYOUT", LAYOUT + behind)
    header = blank(0, ENGINE)[:64]
    page = new_page(tmp_path, header + content[64:])
    assert (page.commands() is None, page.worker_too_old) == (too_old, too_old)
    page.close()


@pytest.mark.parametrize("values", [[float("nan")] * 12, [float("inf")] * 12, [1.0]])
def test_commands_that_are_none_do_not_raise(tmp_path: Path, values: list[float]) -> None:
    """An exception at a step would kill the engine."""
    content = bytearray(blank(0, ENGINE))
    made = record(LAYOUT, values)
    content[64 : 64 + len(made)] = made
    page = new_page(tmp_path, bytes(content))
    assert page.commands() is None
    page.close()


@pytest.mark.parametrize("content", [b"", b"x" * 4000, b"SLACKWTR", blank(0, ENGINE)[:-1]])
def test_a_file_that_is_no_page_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(PageError) as caught:
        new_page(tmp_path, content)
    assert caught.value.code == UNKNOWN


def test_fields_are_only_appended() -> None:
    for kind, first in FIRST_FIELDS.items():
        names = first.split()
        assert list(FIELDS[kind][: len(names)]) == names
        assert LAYOUT > FIRST_LAYOUT or len(FIELDS[kind]) == len(names), "another field: add 1 to LAYOUT"


def test_every_field_is_on_the_page_and_every_later_one_has_a_default() -> None:
    for kind in (Commands, Report):
        known: dict[str, Any] = {field.name: field.default for field in fields(kind)}
        assert sorted(FIELDS[kind]) == sorted(known)
        later = FIELDS[kind][len(FIRST_FIELDS[kind].split()) :]
        assert all(known[name] is not MISSING for name in later)


def test_the_records_do_not_overlap(page: ControlPage) -> None:
    records = [page._commands, page._report, page._learnt]
    for one, two in pairwise(records):
        assert one._whole.stop <= one._room.stop <= two._whole.start
    assert records[-1]._room.stop <= len(page._map)
