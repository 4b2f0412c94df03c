"""Claims about two versions that run side by side: the last release (testing/releases), and this code with a newer schema."""

import ast
import zipfile
from itertools import pairwise

import pytest

from tests.crash.checker import report
from tests.timing import note
from tests.upgrade.fleet import KINDS
from tests.upgrade.rolling import PROOFS, Rolling, every_arrangement, mix, roll
from tests.upgrade.versions import RELEASES, ROOT


def check(found: Rolling) -> None:
    """Nothing was lost, doubled or run again, and no submit failed."""
    text = report(found.history, 1)
    note(text)
    assert found.history.sound, text
    assert found.history.notes["submits"] >= PROOFS


async def test_under_load_an_old_and_a_new_process_of_each_kind_share_the_work_on_the_new_schema() -> None:
    check(await mix())


@pytest.mark.slow
async def test_old_and_new_parts_work_together_in_every_arrangement_forward_and_back() -> None:
    found = await roll(list(every_arrangement()))
    check(found)
    assert len(set(found.arrangements)) == 16
    assert found.refused.startswith("503 ")
    assert "install a newer version" in found.refused
    assert found.pairs == {(old, new) for old in KINDS for new in KINDS if old != new}


def test_every_arrangement_comes_once_and_differs_from_the_one_before_in_one_kind() -> None:
    arrangements = list(every_arrangement())
    assert len(set(arrangements)) == len(arrangements) == 16
    assert all(len(one ^ other) == 1 for one, other in pairwise(arrangements))


def test_the_migrations_of_the_last_release_are_unchanged() -> None:
    """Comments may change."""
    (wheel,) = RELEASES.glob("slackwater-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        released = [name for name in archive.namelist() if name.startswith("migrations/versions/0")]
        assert released
        for name in released:
            now = ast.parse((ROOT / name).read_text())
            assert ast.dump(now) == ast.dump(ast.parse(archive.read(name))), name
