"""Claims about the second try that CI gives to tests."""

from pathlib import Path

import pytest

from tests import twice

TESTS = """
from pathlib import Path
import pytest

def test_steady():
    with Path("ran").open("a") as ran:
        ran.write("steady ")

def test_wavering():
    before = Path("tried").exists()
    Path("tried").touch()
    assert before

{more}
"""
BROKEN = "def test_broken():\n    assert False"


@pytest.fixture
def flaky_txt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty list, beside tests of which one passes at the second try."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / "test_it.py").write_text(TESTS.format(more=""))
    known = tmp_path / "flaky.txt"
    known.write_text("# by hand\n")
    return known


def test_what_passes_only_at_the_second_try_is_named_and_only_that_is_tried_again(
    flaky_txt: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert twice.main([], flaky_txt, 0) == 0
    told = [line for line in capfd.readouterr().out.splitlines() if line.startswith("flaky")]
    assert told == ["flaky: test_it.py::test_wavering"]
    assert Path("ran").read_text() == "steady "


def test_a_known_one_that_fails_has_no_second_try(flaky_txt: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flaky_txt.write_text("# by hand\ntest_it.py::test_wavering\n")
    assert twice.main([], flaky_txt, 0) == 1
    assert "mend it and take it off flaky.txt: test_it.py::test_wavering" in capfd.readouterr().out
    assert twice.main([], flaky_txt, 0) == 0  # one that passes is no failure


def test_twice_wrong_is_wrong(flaky_txt: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_it.py").write_text(TESTS.format(more=BROKEN))
    assert twice.main([], flaky_txt, 0) == 1
    assert "flaky: test_it.py::test_broken" not in capfd.readouterr().out


def test_a_run_that_did_not_end_as_a_run_has_no_second_try(flaky_txt: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_it.py").write_text(TESTS.format(more="def test_end():\n    pytest.exit('enough', returncode=3)"))
    assert twice.main([], flaky_txt, 0) == 3
    assert "once more" not in capfd.readouterr().out
    assert twice.main(["no_such_file.py"], flaky_txt, 0) == 4


def test_what_is_known_to_be_flaky_exists() -> None:
    root = Path(__file__).parents[1]
    for name in twice._names(twice.KNOWN):
        file, _, test = name.partition("::")
        assert f"def {test.rpartition('::')[2].partition('[')[0]}(" in (root / file).read_text(), name
