"""Claims about two versions that run side by side: the last release (testing/releases), and this code with a newer schema."""

import ast
import zipfile
from itertools import pairwise

import pytest

from tests.crash.checker import report
from tests.timing import note
from tests.upgrade.fleet import KINDS
from tests.upgrade.rolling import Rolling, every_arrangement, roll
from tests.upgrade.versions import RELEASES, ROOT


def check(found: Rolling) -> None:
    """Nothing was lost, doubled or run again, no submit failed, and the old version was refused in the end."""
    text = report(found.history, 1)
    note(text)
    assert found.history.sound, text
    assert found.history.notes["submits"] > len(found.arrangements)
    assert found.refused.startswith("503 ")
    assert "install a newer version" in found.refused


async def test_the_old_version_goes_on_with_the_new_schema_until_every_part_is_replaced() -> None:
    check(await roll([frozenset()]))


@pytest.mark.slow
async def test_old_and_new_parts_work_together_in_every_arrangement_forward_and_back() -> None:
    found = await roll(list(every_arrangement()))
    check(found)
    assert len(set(found.arrangements)) == 16
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
