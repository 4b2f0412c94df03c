"""Claims about the rules in deploy/observability: they parse, each alert fires and stays silent where it should."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.observability.alert_cases import BURNS, CASES, COUNTS, RARE, Case, Series, steady
from tests.observability.support import DEPLOY, RUNBOOKS, alerts, rules, run, script
from tests.sets import examples

BASE = "https://docs.example.com/runbooks"


def series(values: Series) -> list[dict[str, str]]:
    return [{"series": name, "values": text} for name, text in values.items()]


def state(case: Case, given: Series, *, firing: bool) -> dict[str, Any]:
    """A promtool test: whether the alert fires at the end."""
    of = f'alertname="{case.alert}"' + (f', severity="{case.severity}"' if case.severity else "")
    samples = [{"labels": "{}", "value": 1}] if firing else []
    test = {
        "expr": f'count(ALERTS{{alertstate="firing", {of}}}) > bool 0',
        "eval_time": f"{case.minutes}m",
        "exp_samples": samples,
    }
    name = f"{case.name} {'fires' if firing else 'is silent'}"
    return {"name": name, "interval": f"{case.step}m", "input_series": series(given), "promql_expr_test": [test]}


OBJECTIVES, OTHERS = ("objectives",), ("alerts", "recording")  # promtool evaluates every rule of the files that it gets


def passes(promtool: str, folder: Path, *tests: dict[str, Any], step: int = 1, rules: tuple[str, ...] = OTHERS) -> None:
    files = [str(DEPLOY / "rules" / f"{name}.yml") for name in rules]
    file = folder / "cases.yml"
    file.write_text(yaml.safe_dump({"rule_files": files, "evaluation_interval": f"{step}m", "tests": list(tests)}))
    run(promtool, "test", "rules", file)


def behave(cases: Sequence[Case], promtool: str, folder: Path) -> None:
    """In one run of promtool, which names the case that it disproves."""
    tests = [
        each for case in cases for each in (state(case, case.fires, firing=True), state(case, case.calm, firing=False))
    ]
    passes(promtool, folder, *tests, step=cases[0].step, rules=OBJECTIVES if cases[0].severity else OTHERS)


def test_the_configuration_and_every_rule_pass_promtool(promtool: str) -> None:
    run(promtool, "check", "config", DEPLOY / "prometheus.yml")
    run(promtool, "check", "rules", *sorted((DEPLOY / "rules").glob("*.yml")))


def test_an_alert_fires_on_what_it_is_for_and_not_on_what_is_normal(promtool: str, tmp_path: Path) -> None:
    behave(COUNTS[:: examples(12, 1)], promtool, tmp_path)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=pytest.mark.slow if n else []) for n, case in enumerate(BURNS)]
)
def test_so_does_an_alert_on_an_error_budget(case: Case, promtool: str, tmp_path: Path) -> None:
    behave([case], promtool, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("case", RARE, ids=lambda case: case.name)
def test_few_bad_events_call_nobody(case: Case, promtool: str, tmp_path: Path) -> None:
    behave([case], promtool, tmp_path)


def test_every_alert_has_a_case() -> None:
    known = {(rule["alert"], rule["labels"]["severity"]) for rule in alerts()}
    severities = {alert: [s for a, s in known if a == alert] for alert, _ in known}
    covered = {(case.alert, case.severity or severities[case.alert][0]) for case in CASES}
    assert covered == known


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {rule["alert"] for rule in alerts()} == {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"}
    for rule in alerts():
        assert rule["annotations"]["runbook_url"] == f"{{{{ $externalLabels.runbooks }}}}/{rule['alert']}.md"
        assert rule["labels"]["severity"] in ("page", "ticket")


def test_the_url_of_a_runbook_begins_with_the_base_that_the_configuration_names(promtool: str, tmp_path: Path) -> None:
    alert = {
        "exp_labels": {"severity": "page"},
        "exp_annotations": {
            "summary": "no steward leads: batches do not end, lost workers keep their chunks",
            "runbook_url": f"{BASE}/NoSteward.md",
        },
    }
    test = {
        "interval": "1m",
        "external_labels": {"runbooks": BASE},
        "input_series": series({"slackwater_steward_leads": steady(0)}),
        "alert_rule_test": [{"eval_time": "5m", "alertname": "NoSteward", "exp_alerts": [alert]}],
    }
    passes(promtool, tmp_path, test)
    assert "runbooks" in yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["global"]["external_labels"]


def test_the_rules_on_error_budgets_are_those_of_the_objectives() -> None:
    objectives = script("objectives")
    assert objectives.FILE.read_text() == objectives.rules(), "run: python deploy/observability/objectives.py"


def test_every_recorded_name_is_one_name() -> None:
    recorded = [(rule["record"], str(rule.get("labels"))) for rule in rules() if "record" in rule]
    assert len(recorded) == len(set(recorded))
