"""Worker and schedulers find each other in a folder: who lives, who died, who may look, and what cannot be used."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from testing.waiting import wait_for
from tests.harvest.commands import COMMANDS
from workers.engine import page_folder
from workers.engine.control_page import TOO_OLD, UNKNOWN, Report, Weights
from workers.engine.page_folder import (
    NO_FOLDER,
    NO_PAGE,
    OPEN_TO_OTHERS,
    SEVERAL,
    UNREADABLE,
    OwnPage,
    PageFolder,
)

ENGINE, OTHER = b"one engi", b"another "
WEIGHTS = Weights(1, 2, 3, 4, 5)
SCHEDULER = """
import os, sys, time
from pathlib import Path
from workers.engine.control_page import Report, Weights
from workers.engine.page_folder import OwnPage
own = OwnPage(Path(sys.argv[1]), 3, b"one engi")
own.page.publish(Report(steps=7), Weights(1, 2, 3, 4, 5))
if "fork" in sys.argv and not os.fork():
    time.sleep(60)
print(own.prior, flush=True)
sys.stdin.readline()
commands = own.page.commands()
own.page.publish(Report(steps=8, step_seconds=commands.itl_budget), Weights(1, 2, 3, 4, 5))
print("published", flush=True)
time.sleep(60)
"""

Make = Callable[..., OwnPage]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Pages of schedulers in this process."""
    made: list[OwnPage] = []

    def make(rank: int = 0, engine: bytes = ENGINE) -> OwnPage:
        made.append(OwnPage(tmp_path / "pages", rank, engine))
        return made[-1]

    yield make
    for own in made:
        if not own.page.closed:
            own.close()


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PageFolder]:
    """The worker's side."""
    folder = PageFolder(tmp_path / "pages")
    yield folder
    folder.close()


def seen(folder: PageFolder) -> tuple[str | None, list[int]]:
    folder.look()
    return folder.problem, [page.rank for page in folder.pages]


@pytest.mark.parametrize("extra", [[], ["fork"]])
def test_a_scheduler_in_another_process_is_found_and_found_dead_however_it_ends(
    tmp_path: Path, folder: PageFolder, make: Make, extra: list[str]
) -> None:
    """Even where a child of its own lives on."""
    command = [sys.executable, "-c", SCHEDULER, str(tmp_path / "pages"), *extra]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "None"
        assert seen(folder) == (None, [3])
        [page] = folder.pages
        page.command(COMMANDS)
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        assert page.report() == Report(steps=8, step_seconds=COMMANDS.itl_budget)
        process.kill()
        process.wait()
        wait_for(lambda: seen(folder) == (NO_PAGE, []), "found dead")  # its child may not have run yet
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert make(3).prior == WEIGHTS
    assert seen(folder) == (None, [3])
    assert len(list((tmp_path / "pages").iterdir())) == 1


def test_the_next_engine_of_a_rank_starts_with_what_the_last_one_had_learned(make: Make) -> None:
    first = make(1)
    first.page.publish(Report(), WEIGHTS)
    first.close()
    assert (make(0).prior, first.path.exists()) == (None, False)
    second = make(1)
    assert second.prior is None  # rank 0 has removed the page: all ranks of an engine start together
    second.page.publish(Report(), WEIGHTS)
    second.close()
    assert make(1).prior == WEIGHTS


def test_a_restarted_engine_is_found_with_its_new_page(make: Make, folder: PageFolder) -> None:
    first = make()
    assert seen(folder) == (None, [0])
    [page] = folder.pages
    first.close()
    make()
    assert seen(folder) == (None, [0])
    assert page.closed
    assert not folder.pages[0].closed


def test_a_rank_that_another_one_looks_at_while_it_starts_has_a_page_too(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, lock = [True, True], fcntl.flock

    def looked_at(file: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and looks and looks.pop():
            raise BlockingIOError
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", looked_at)
    assert make().path.exists()
    assert not looks


def test_every_rank_has_a_page(make: Make, folder: PageFolder) -> None:
    ranks = [make(rank) for rank in (2, 0, 1)]
    assert seen(folder) == (None, [0, 1, 2])
    ranks[0].close()
    assert seen(folder) == (None, [0, 1])


@pytest.mark.parametrize("again", [(0, OTHER), (1, OTHER), (0, ENGINE)])
def test_pages_of_several_engines_are_refused_until_one_is_left(
    make: Make, folder: PageFolder, again: tuple[int, bytes]
) -> None:
    make()
    second = make(*again)
    assert seen(folder) == (SEVERAL, [])
    second.close()
    assert seen(folder) == (None, [0])


def test_pages_are_for_their_owner(make: Make) -> None:
    assert stat.S_IMODE(make().path.stat().st_mode) == 0o600


def test_a_folder_that_its_group_may_write_to_has_pages_for_the_group(tmp_path: Path, make: Make) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages").chmod(0o2777)
    path = make().path
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert path.stat().st_gid == path.parent.stat().st_gid


def test_a_folder_that_is_made_for_the_page_is_private(make: Make) -> None:
    assert stat.S_IMODE(make().path.parent.stat().st_mode) == 0o700


def test_a_page_that_others_may_use_is_refused(make: Make, folder: PageFolder) -> None:
    make().path.chmod(0o606)
    assert seen(folder) == (OPEN_TO_OTHERS, [])


def test_a_page_that_may_not_be_opened_is_said(make: Make, folder: PageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    make()

    def refused(path: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(page_folder, "lives", refused)
    assert seen(folder) == (UNREADABLE, [])


@pytest.mark.parametrize(("offset", "content", "code"), [(0, b"x", UNKNOWN), (8, b"\2", TOO_OLD)])
def test_a_page_that_cannot_be_read_is_said_while_its_scheduler_lives(
    make: Make, folder: PageFolder, offset: int, content: bytes, code: str
) -> None:
    own = make()
    with own.path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
    assert seen(folder) == (code, [])
    own.close()
    assert seen(folder) == (NO_PAGE, [])


def test_a_folder_that_is_missing_or_empty_or_has_other_files(tmp_path: Path, folder: PageFolder) -> None:
    assert seen(folder) == (NO_FOLDER, [])
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "notes.txt").write_text("x")
    assert seen(folder) == (NO_PAGE, [])


def test_a_page_is_not_found_before_it_is_whole(
    tmp_path: Path, make: Make, folder: PageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sights = []

    def rename(self: Path, target: Path) -> Path:
        sights.append(seen(folder))
        os.rename(self, target)
        return target

    monkeypatch.setattr(Path, "rename", rename)
    make()
    assert (sights, seen(folder)) == ([(NO_PAGE, [])], (None, [0]))


def test_a_folder_without_memory_left_gives_no_page_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        OwnPage(tmp_path, 0, ENGINE)
    assert not list(tmp_path.iterdir())
