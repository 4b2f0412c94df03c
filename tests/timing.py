"""Prints the notes of tests at the end of a run, and the duration of each folder, including set-up and tear-down."""

from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath

import pytest

_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()
_pending: list[str] = []  # sent with the next report, because another process may print it
_notes: list[str] = []


def note(text: str) -> None:
    """Print a line once at the end of the run."""
    _pending.append(text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the notes of this phase to its report."""
    report = yield
    report.user_properties.extend(("", text) for text in _pending)
    _pending.clear()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the duration of a phase of a test to its folder."""
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
    """Print the notes of `record_property`, then the table with the slowest folder first."""
    if _notes:
        terminalreporter.section("counted and met")
        for note in _notes:
            terminalreporter.line(note)
    terminalreporter.section("time per folder")
    for folder, seconds in _seconds.most_common():
        terminalreporter.line(f"{seconds:8.1f} s  {_tests[folder]:5d} tests  {folder}")
