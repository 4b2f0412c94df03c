"""Says at the end of a run what tests noted, and how long each folder of tests took (set-up and tear-down included)."""

from collections import Counter
from pathlib import PurePosixPath

import pytest

_seconds: Counter[str] = Counter()
_tests: Counter[str] = Counter()
_notes: list[str] = []


def note(text: str) -> None:
    """Say something at the end of the run, once."""
    if text not in _notes:
        _notes.append(text)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add one phase of one test to its folder."""
    folder = str(PurePosixPath(report.nodeid.split("::")[0]).parent)
    _seconds[folder] += report.duration  # type: ignore[assignment]  # a Counter adds floats as well
    _tests[folder] += report.when == "call"
    if report.when == "call":
        _notes.extend(f"{name}: {value}" for name, value in report.user_properties)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What tests noted by `record_property`, then the table, slowest folder first."""
    if _notes:
        terminalreporter.section("counted and met")
        for note in _notes:
            terminalreporter.line(note)
    terminalreporter.section("time per folder")
    for folder, seconds in _seconds.most_common():
        terminalreporter.line(f"{seconds:8.1f} s  {_tests[folder]:5d} tests  {folder}")
