"""An installation whose parts serve their metrics, and what their pages, the rules and the dashboards contain."""

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import yaml

from testing.waiting import wait_for
from tests.system.stack import MODEL, Account, Stack
from tests.webhooks.support import receiving

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "observability"
RUNBOOKS = ROOT / "docs" / "runbooks"
PORTS = {part: f"{part}_metrics_port" for part in ("steward", "maintenance", "notifier", "worker")}
_TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
_WORD = re.compile(
    r'"[^"]*"|\'[^\']*\'|\{[^{}]*}|\[[^]]*]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)'
)
_SERIES = re.compile(r"\b(?:slackwater[_:]|process_)[a-z0-9_:]+|\bup\b")
_SUFFIXES = ("_bucket", "_count", "_sum")


@dataclass
class Installed:
    """A running installation and an account of it. `pages`: what each part answered to `GET /metrics`."""

    stack: Stack
    account: Account
    pages: dict[str, str]

    def families(self, part: str) -> dict[str, str]:
        """Name and type of everything on a part's page."""
        return dict(_TYPE.findall(self.pages[part]))

    @property
    def names(self) -> set[str]:
        """All metrics of all parts, and the series of a histogram under their own names."""
        found = {"up"}  # Prometheus makes it
        for part in self.pages:
            for name, kind in self.families(part).items():
                found |= {f"{name}{suffix}" for suffix in _SUFFIXES} if kind == "histogram" else {name}
        return found


def installed(stack: Stack, account: Account) -> Installed:
    """Let each part do something, and read their pages."""
    ports = {part: getattr(stack.settings, setting) for part, setting in PORTS.items()}
    with receiving() as receiver:
        account.subscribe(receiver.url)
        request_id = account.submit([{"prompt": f"item {n}"} for n in range(5)])
        wait_for(lambda: account.poll(request_id), what="the batch is done")
        chat = {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}
        assert account.client.post("/v1/chat/completions", json=chat).status_code == 200
        wait_for(lambda: "delay_seconds_count 0.0" not in _page(ports["notifier"]), what="a webhook is sent")
        wait_for(lambda: "slackwater_open_batches " in account.client.get("/metrics").text, what="the API has read")
    pages = {part: _page(port) for part, port in ports.items()}
    return Installed(stack, account, {"api": account.client.get("/metrics").text, **pages})


def _page(port: int) -> str:
    return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text


def rules() -> list[dict[str, Any]]:
    """All rules, recording and alerting."""
    files = sorted((DEPLOY / "rules").glob("*.yml"))
    return [rule for file in files for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """The rules that alert."""
    return [rule for rule in rules() if "alert" in rule]


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards that are checked in, by file name."""
    return {file.name: json.loads(file.read_text()) for file in (DEPLOY / "grafana" / "dashboards").glob("*.json")}


def panel_expressions(dashboard: dict[str, Any]) -> list[str]:
    """The queries of a dashboard, with a value for each variable of Grafana."""
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [each["expr"] for each in dashboard["annotations"]["list"] if "expr" in each]
    return [re.sub(r"\$__rate_interval", "5m", expr).replace("$model", ".*") for expr in found]


def series(expression: str) -> set[str]:
    """The metrics that an expression reads."""
    return set(_SERIES.findall(_WORD.sub(" ", expression)))


def script(name: str) -> ModuleType:
    """A script of deploy/observability as a module."""
    found = importlib.util.spec_from_file_location(name, DEPLOY / f"{name}.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses look for their module
    sys.path.insert(0, str(DEPLOY))  # as for a script that is started
    try:
        found.loader.exec_module(module)
    finally:
        sys.path.remove(str(DEPLOY))
    return module


def run(*command: object, given: str | None = None) -> None:
    """Run a program. Asserts that it succeeds, and shows what it said."""
    done = subprocess.run([str(part) for part in command], input=given, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
