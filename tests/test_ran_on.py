"""The table of docs/support.md lists versions on which a test has passed, and nothing else."""

import json
from pathlib import Path

import pytest

from tests import ran_on

pytest_plugins = ["pytester"]

_RECORDING = """
from pathlib import Path
from tests import ran_on
ran_on.FOUND = Path("found.json")
"""
_TESTS = """
import pytest
from tests.ran_on import met

def test_passes():
    met("PgBouncer 1.22.0")

def test_passes_too():
    met("PgBouncer 1.22.0")

def test_fails():
    met("Redis 6.0.0")
    assert False

def test_is_skipped():
    met("Redis 5.0.0")
    pytest.skip()

@pytest.fixture
def broken():
    met("RabbitMQ 3.0.0")
    raise RuntimeError

def test_has_no_server(broken):
    pass
"""


def test_a_version_is_recorded_where_a_test_passed_on_it_and_not_where_one_failed_or_was_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ran_on.ROOT))
    pytester.makeconftest(_RECORDING)
    pytester.makepyfile(_TESTS)
    pytester.runpytest_subprocess("-p", "tests.ran_on").assert_outcomes(passed=2, failed=1, skipped=1, errors=1)
    found = json.loads((pytester.path / "found.json").read_text())
    assert {what: n for what, n in found.items() if not what.startswith("Python")} == {"PgBouncer 1.22.0": 2}


def test_the_table_has_a_row_for_each_recorded_version_and_no_row_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ran_on, "FOUND", tmp_path / "found.json")
    ran_on.FOUND.write_text(json.dumps({"PgBouncer 1.24.1": 3}))
    page = ran_on.renewed(ran_on.PAGE.read_text())
    assert [line for line in page.splitlines() if line.startswith("| ")][1:] == ["| PgBouncer 1.24.1 | 3 |"]


def test_without_a_recorded_run_the_page_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ran_on, "FOUND", tmp_path / "found.json")
    with pytest.raises(SystemExit, match="run tests first"):
        ran_on.renewed(ran_on.PAGE.read_text())
