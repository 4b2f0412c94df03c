"""Claims about docs/metrics.md and `/metrics`: the table is what the parts serve, and the pages are what Prometheus expects."""

import re

import pytest

from app.api.metrics import MEANINGS
from tests.observability.support import ROOT, Installed, run

PAGE = ROOT / "docs" / "metrics.md"
PARTS = {"API": "api", "Steward": "steward", "Maintenance": "maintenance", "Notifier": "notifier", "Worker": "worker"}
EVERY = "Every part"
OF_THE_PROCESS = ("process_", "python_")
_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_SAMPLE = re.compile(r"^(\w+?)(?:_bucket|_count|_sum)?\{(.*)} ", re.MULTILINE)
ALL_PARTS = pytest.mark.parametrize("part", PARTS.values())


def documented(part: str) -> dict[str, tuple[str, set[str]]]:
    """Type and labels of the metrics that the page lists for a part."""
    found: dict[str, tuple[str, set[str]]] = {}
    for section in PAGE.read_text().split("\n## ")[1:]:
        heading = section.partition("\n")[0]
        if heading == EVERY or PARTS[heading.partition(":")[0]] == part:
            for name, kind, labels, _, _ in _ROW.findall(section):
                assert name not in found, name
                found[name] = kind, set(re.findall(r"`(\w+)`", labels))
    return found


@ALL_PARTS
def test_the_table_has_every_metric_of_a_live_part_and_no_other(part: str, served: Installed) -> None:
    served = {name: kind for name, kind in served.families(part).items() if not name.startswith(OF_THE_PROCESS)}
    assert {name: kind for name, (kind, _) in documented(part).items()} == served


@ALL_PARTS
def test_the_labels_of_every_live_sample_are_those_of_the_table(part: str, served: Installed) -> None:
    known = documented(part)
    samples = 0
    for line in served.pages[part].splitlines():
        sample = _SAMPLE.match(line)
        if sample and sample[1].startswith("slackwater_"):
            name = sample[1] if sample[1] in known else line.partition("{")[0]
            labels = set(re.findall(r'(\w+)="', sample[2])) - {"le"}
            assert labels == known[name][1], name
            samples += 1
    assert samples


def test_the_labels_of_the_queues_gauges_are_those_of_the_table_though_nothing_has_been_measured() -> None:
    known = documented("api")
    found = {f"slackwater_{name}": set(labels.split()) for name, (labels, _) in MEANINGS.items()}
    assert {name: known[name][1] for name in found} == found


@ALL_PARTS
def test_the_page_of_a_part_passes_promtool(part: str, served: Installed, promtool: str) -> None:
    run(promtool, "check", "metrics", given=served.pages[part])


@ALL_PARTS
def test_every_page_says_since_when_its_process_runs(part: str, served: Installed) -> None:
    assert {"process_start_time_seconds", "slackwater_build_info"} <= served.families(part).keys()


def test_every_row_names_a_unit_and_asks_something() -> None:
    rows = _ROW.findall(PAGE.read_text())
    assert len(rows) > 80
    for name, _, _, unit, question in rows:
        assert unit.strip(), name
        assert question.strip(), name
