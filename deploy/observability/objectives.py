"""The objectives of docs/slo.md, and the Prometheus rules that follow from them: `python deploy/observability/objectives.py`.

For each objective the rules record which share of its events was bad, over seven windows. Its alert fires when the error budget
of 30 days burns so fast that somebody must look now (`page`) or within days (`ticket`), in a long and a short window at once, so
that it ends soon after the trouble. With few events a share means nothing; then it stays silent.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parent / "rules" / "objectives.yml"
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
# (severity, how long it must hold, window in which events are counted, (burn rate, long window, short window)…)
BURNS = (
    ("page", "1m", "1h", ((14.4, "1h", "5m"), (6, "6h", "30m"))),
    ("ticket", "15m", "1d", ((3, "1d", "2h"), (1, "3d", "6h"))),
)
RUNBOOK = "{{ $externalLabels.runbooks }}/%s.md"
HEADER = "# Written by objectives.py. Do not edit.\n"


@dataclass(frozen=True, slots=True)
class Objective:
    """`good` and `events` are expressions with `WINDOW` for the window; `share`: of the events that must be good.

    `least`: events without which nothing is said. `bad`: what is wrong with the others, for people.
    """

    name: str
    alert: str
    share: float
    events: str
    good: str
    least: int
    bad: str


OBJECTIVES = (
    Objective(
        "ttft",
        "SlowFirstTokens",
        0.99,
        "sum(increase(slackwater_ttft_seconds_count[WINDOW]))",
        'sum(increase(slackwater_ttft_seconds_bucket{le="2.0"}[WINDOW]))',
        30,
        "of the synchronous streams waited longer than 2 s for their first token",
    ),
    Objective(
        "submits",
        "SubmitsFail",
        0.999,
        "sum(increase(slackwater_submits_total[WINDOW]))",
        'sum(increase(slackwater_submits_total{outcome!="failed"}[WINDOW]))',
        30,
        "of the submits failed by an error of ours",
    ),
    Objective(
        "deadlines",
        "DeadlinesMissed",
        0.99,
        'sum(increase(slackwater_steward_batches_ended_total{deadline="yes", state!="cancelled"}[WINDOW]))',
        'sum(increase(slackwater_steward_batches_ended_total{deadline="yes", state=~"completed|failed"}[WINDOW]))',
        20,
        "of the batches with a deadline expired",
    ),
    Objective(
        "webhooks",
        "WebhooksLate",
        0.99,
        "sum(increase(slackwater_notifier_delay_seconds_count[WINDOW]))",
        'sum(increase(slackwater_notifier_delay_seconds_bucket{le="60.0"}[WINDOW]))',
        30,
        "of the webhooks were tried later than 60 s after they were due",
    ),
)


def recordings(objective: Objective) -> list[dict[str, Any]]:
    """The share of bad events over each window, and the number of events over those that guard the alerts."""
    labels = {"slo": objective.name}
    found = []
    for window in WINDOWS:
        good, events = (text.replace("WINDOW", window) for text in (objective.good, objective.events))
        found.append(
            {
                "record": f"slackwater:bad_events:ratio_{window}",
                "labels": labels,
                "expr": f"1 - {good} / ({events} > 0)",
            }
        )
    for window in dict.fromkeys(counted for _, _, counted, _ in BURNS):
        events = objective.events.replace("WINDOW", window)
        found.append({"record": f"slackwater:events:count_{window}", "labels": labels, "expr": events})
    return found


def alerts(objective: Objective) -> list[dict[str, Any]]:
    """The alert that pages, and the one that makes a ticket."""
    return [
        {
            "alert": objective.alert,
            "expr": _burning(objective, counted, burns),
            "for": hold,
            "labels": {"severity": severity},
            "annotations": {
                "summary": f"{{{{ $value | humanizePercentage }}}} {objective.bad}: the error budget burns too fast",
                "runbook_url": RUNBOOK % objective.alert,
            },
        }
        for severity, hold, counted, burns in BURNS
    ]


def _burning(objective: Objective, counted: str, burns: tuple[tuple[float, str, str], ...]) -> str:
    slo = f'{{slo="{objective.name}"}}'
    pairs = []
    for rate, long, short in burns:
        limit = round(rate * (1 - objective.share), 6)
        series = "slackwater:bad_events:ratio_"
        pairs.append(f"({series}{long}{slo} > {limit} and {series}{short}{slo} > {limit})")
    return f"({' or '.join(pairs)}) and slackwater:events:count_{counted}{slo} >= {objective.least}"


def rules() -> str:
    """The file of rules."""
    recorded = [rule for objective in OBJECTIVES for rule in recordings(objective)]
    alerting = [rule for objective in OBJECTIVES for rule in alerts(objective)]
    groups = [
        {"name": "slackwater objectives", "interval": "1m", "rules": recorded},
        {"name": "slackwater error budgets", "rules": alerting},
    ]
    return HEADER + yaml.safe_dump({"groups": groups}, sort_keys=False, width=200)


if __name__ == "__main__":
    FILE.write_text(rules())
