"""Claims about docs/slo.md: it says what objectives.py measures."""

import re

import pytest

from tests.observability.support import ROOT, script

PAGE = (ROOT / "docs" / "slo.md").read_text()
_ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) % \| .+ \| .+ \| \[(\w+)\]\(runbooks/\3\.md\) \|$", re.MULTILINE)
_BURN = re.compile(r"^\| (page|ticket) \| ([\d.]+) \| (\d+) (\w+) and (\d+) (\w+) \| .+ \|$", re.MULTILINE)


def test_the_page_has_the_objectives_their_shares_and_their_alerts() -> None:
    known = [(each.name, each.share, each.alert) for each in script("objectives").OBJECTIVES]
    assert [(name, pytest.approx(float(share) / 100), alert) for name, share, alert in _ROW.findall(PAGE)] == known


def test_the_page_has_the_burn_rates_and_windows_of_the_alerts() -> None:
    shown = [
        (severity, float(rate), f"{long}{unit[0]}", f"{short}{small[0]}")
        for severity, rate, long, unit, short, small in _BURN.findall(PAGE)
    ]
    expected = [
        (severity, rate, long, short)
        for severity, _, _, burns in script("objectives").BURNS
        for rate, long, short in burns
    ]
    assert shown == expected


def test_every_recorded_ratio_that_the_page_names_exists() -> None:
    rules = "".join(file.read_text() for file in (ROOT / "deploy" / "observability" / "rules").glob("*.yml"))
    assert [name for name in re.findall(r"`(slackwater:[\w:]+)`", PAGE) if f"record: {name}\n" not in rules] == []


def test_what_shows_a_recovery_exists_and_what_watches_it_fires() -> None:
    table = PAGE.partition("## After a loss")[2]
    tests, alerts = re.findall(r"`(tests/[\w/]+\.py)`", table), re.findall(r"\[(\w+)\]\(runbooks/\1\.md\)", table)
    assert len(set(tests)) > 8
    assert [each for each in tests if not (ROOT / each).exists()] == []
    rules = "".join(file.read_text() for file in (ROOT / "deploy" / "observability" / "rules").glob("*.yml"))
    assert [each for each in alerts if f"alert: {each}\n" not in rules] == []
