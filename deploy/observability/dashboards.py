"""Writes the Grafana dashboards in grafana/dashboards: `python deploy/observability/dashboards.py`.

`boards.py` has their content: a dashboard is a list of rows, and a row a list of panels.
"""

import json
from pathlib import Path
from typing import Any

from boards import DASHBOARDS
from panels import SOURCE, Panel

FOLDER = Path(__file__).parent / "grafana" / "dashboards"
WIDTH = 24
ANNOTATIONS = {
    "version": "count by (version) (slackwater_build_info) unless count by (version) (slackwater_build_info offset 1m)",
    "restart": 'changes(process_start_time_seconds{job=~"slackwater-.+"}[1m]) > 0',
    "leader": "(slackwater_steward_leading == 1) unless (slackwater_steward_leading offset 1m == 1)",
}


def dashboard(uid: str, title: str, rows: list[list[Panel]]) -> dict[str, Any]:
    """The classic JSON of a dashboard. Panels of a row share its width."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        width = WIDTH // len(row)
        placed = [panel.json(len(panels) + i + 1, i * width, y, width) for i, panel in enumerate(row)]
        panels += placed
        y += max(panel["gridPos"]["h"] for panel in placed)
    link = {"title": "Slackwater", "type": "dashboards", "tags": ["slackwater"], "asDropdown": True}
    return {
        "uid": f"slackwater-{uid}",
        "title": title,
        "tags": ["slackwater"],
        "schemaVersion": 39,
        "editable": False,
        "refresh": "15s",
        "graphTooltip": 1,
        "time": {"from": "now-3h", "to": "now"},
        "links": [link],
        "annotations": {"list": [_annotation(name, expr) for name, expr in ANNOTATIONS.items()]},
        "templating": {"list": []},
        "panels": panels,
    }


def _annotation(name: str, expr: str) -> dict[str, Any]:
    return {"name": name, "datasource": SOURCE, "enable": True, "expr": expr, "iconColor": "blue", "titleFormat": name}


def texts() -> dict[str, str]:
    """The content of each file, by its name."""
    return {
        f"{uid}.json": json.dumps(dashboard(uid, title, rows), indent=1, ensure_ascii=False) + "\n"
        for uid, (title, rows) in DASHBOARDS.items()
    }


if __name__ == "__main__":
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for name, text in texts().items():
        (FOLDER / name).write_text(text)
