"""Tests are skipped in one place, so that CI can fail where what is missing could have been installed."""

import re
from pathlib import Path

import pytest

from tests import needs

SKIPS = re.compile(r"pytest\.(skip|importorskip|mark\.skip|mark\.skipif)\(")
ELSEWHERE = {"needs.py", "test_needs.py", "test_ran_on.py"}  # the last one has tests in a string


def test_no_other_place_skips_a_test() -> None:
    files = [path for path in Path(__file__).parent.rglob("*.py") if path.name not in ELSEWHERE]
    assert [str(path) for path in files if SKIPS.search(path.read_text())] == []


def test_ci_fails_on_what_could_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for ci, raised in (("true", pytest.fail.Exception), ("", pytest.skip.Exception)):
        monkeypatch.setenv("CI", ci)
        with pytest.raises(raised, match="get it by"):
            needs.missing("it is not here: get it by this command")
    with pytest.raises(pytest.skip.Exception):
        needs.unable("no GPU")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(ImportError, match="pip install"):
        needs.module("no_such_module_anywhere")
