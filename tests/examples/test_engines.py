"""The bridges to other engines, each started for real in its own environment, beside a running installation.

`examples/engines/setup.sh` builds the environments. A bridge without one is skipped.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from app import processes
from testing.waiting import wait_for
from tests.needs import unable
from tests.system.stack import Account

FOLDER = Path(__file__).parents[2] / "examples/engines"
PROMPTS = ("name a tide", "name a harbour")
SECONDS = 300

pytestmark = pytest.mark.slow


def _python(engine: str) -> Path:
    environment = FOLDER / ".venv" / engine
    if not (environment / "built").exists():
        unable(f"not built, as it takes minutes: examples/engines/setup.sh {engine}")
    return environment / "bin/python"


def _run(
    engine: str, account: Account, folder: Path, variables: Mapping[str, str] | None = None, bridges: Path = FOLDER
) -> str:
    """What a bridge of this folder printed."""
    python, url = _python(engine), account.url
    own = {
        "HOME": str(folder),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "NO_PROXY": "*",
        "SLACKWATER_URL": url,
        "SLACKWATER_KEY": account.key,
        "BRIDGE_URL": f"http://127.0.0.1:{processes.free_port()}",
    }
    command = [str(python), str(bridges / f"{engine}_bridge.py"), *PROMPTS]
    done = subprocess.run(
        command,
        cwd=folder,
        env=own | dict(variables or {}),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout + done.stderr


def _all_answered(account: Account, printed: str, batches_before: int) -> None:
    assert re.search(r"\b0: ", printed)
    assert re.search(r"\b1: ", printed)
    assert _batches(account) == batches_before + 1


def _batches(account: Account) -> int:
    return len(account.client.get("/v1/batches").raise_for_status().json()["data"])


def test_the_webhook_completes_a_temporal_activity(account: Account, tmp_path: Path) -> None:
    python, port, before = _python("temporal"), processes.free_port(), _batches(account)
    command = [str(python.parent / "temporal"), "server", "start-dev", "--headless", "--port", str(port)]
    server = subprocess.Popen(
        [*command, "--log-level", "error"], cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}
    )
    try:
        wait_for(lambda: _answers(python.parent / "temporal", port), what="Temporal's server")
        printed = _run("temporal", account, tmp_path, {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}"})
    finally:
        server.kill()
        server.wait()
    _all_answered(account, printed, before)


def _answers(temporal: Path, port: int) -> bool:
    command = [str(temporal), "operator", "cluster", "health", "--address", f"127.0.0.1:{port}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_webhook_wakes_a_dbos_workflow(account: Account, tmp_path: Path) -> None:
    before = _batches(account)
    _all_answered(account, _run("dbos", account, tmp_path), before)


def test_airflows_operator_for_openai_runs_a_batch(account: Account, tmp_path: Path) -> None:
    before, url = _batches(account), account.url
    connection = f'{{"conn_type": "openai", "host": "{url}/v1", "password": "{account.key}"}}'
    (dags := tmp_path / "dags").mkdir()
    for name in ("airflow_bridge.py", "slackwater_batches.py"):
        shutil.copy(FOLDER / name, dags)
    folders = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
    more = {"AIRFLOW_CONN_SLACKWATER": connection, "AIRFLOW__CORE__LOAD_EXAMPLES": "false", **folders}
    migrated = subprocess.run(
        [str(_python("airflow")), "-m", "airflow", "db", "migrate"],
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert migrated.returncode == 0, migrated.stderr[-4000:]
    _all_answered(account, _run("airflow", account, tmp_path, more, bridges=dags), before)


def test_a_prefect_flow_polls_its_batch(account: Account, tmp_path: Path) -> None:
    before = _batches(account)
    patient = {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120"}
    _all_answered(account, _run("prefect", account, tmp_path, {"POLL_SECONDS": "0.2", **patient}), before)
