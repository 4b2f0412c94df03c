"""Says at the end of a run what tests noted, and how long each folder of tests took (set-up and tear-down included)."""

from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath

import pytest

_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()
_pending: list[str] = []  # goes with the next report: it may be written in another process than that which prints it
_notes: list[str] = []


def note(text: str) -> None:
    """Say something at the end of the run, once."""
    _pending.append(text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was noted in this phase goes with its report."""
    report = yield
    report.user_properties.extend(("", text) for text in _pending)
    _pending.clear()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add one phase of one test to its folder."""
    folder = str(PurePosixPath(report.nodeid.split("::")[0]).parent)
    _seconds[folder] += report.duration  # type: ignore[assignment]  # a Counter adds floats as well
    _tests[folder] += report.when == "call"
    told = [
        f"{name}: {value}" if name else str(value)
        for name, value in report.user_properties
        if not name or report.when == "call"
    ]
    _notes.extend(text for text in told if text not in _notes)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests noted by `record_property`, then the table, slowest folder first."""
    if _notes:
        terminalreporter.section("counted and met")
        for note in _notes:
            terminalreporter.line(note)
    terminalreporter.section("time per folder")
    for folder, seconds in _seconds.most_common():
        terminalreporter.line(f"{seconds:8.1f} s  {_tests[folder]:5d} tests  {folder}")
