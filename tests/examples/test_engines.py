"""The bridges to other engines, each started for real in its own environment, beside a running installation.

`examples/engines/setup.sh` builds the environments. A bridge without one is skipped.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from app import processes
from testing.waiting import wait_for
from tests.clients.handed_on import key_of
from tests.system.stack import Stack, running

FOLDER = Path(__file__).parents[2] / "examples/engines"
PROMPTS = ("name a tide", "name a harbour")
SECONDS = 300

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running() as stack:
        yield stack


def _python(engine: str) -> Path:
    environment = FOLDER / ".venv" / engine
    if not (environment / "built").exists():
        pytest.skip(f"examples/engines/setup.sh {engine} has not been run")
    return environment / "bin/python"


def _run(
    engine: str, stack: Stack, folder: Path, variables: Mapping[str, str] | None = None, bridges: Path = FOLDER
) -> str:
    """What a bridge of this folder printed."""
    python, url = _python(engine), str(stack.client.base_url).rstrip("/")
    own = {
        "HOME": str(folder),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "NO_PROXY": "*",
        "SLACKWATER_URL": url,
        "SLACKWATER_KEY": key_of(stack),
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


def _all_answered(stack: Stack, printed: str, batches_before: int) -> None:
    assert re.search(r"\b0: ", printed)
    assert re.search(r"\b1: ", printed)
    assert _batches(stack) == batches_before + 1


def _batches(stack: Stack) -> int:
    return int(stack.query("select count(*) from batch")[0][0])


def test_the_webhook_completes_a_temporal_activity(stack: Stack, tmp_path: Path) -> None:
    python, port, before = _python("temporal"), processes.free_port(), _batches(stack)
    command = [str(python.parent / "temporal"), "server", "start-dev", "--headless", "--port", str(port)]
    server = subprocess.Popen(
        [*command, "--log-level", "error"], cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)}
    )
    try:
        wait_for(lambda: _answers(python.parent / "temporal", port), "Temporal's server")
        printed = _run("temporal", stack, tmp_path, {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}"})
    finally:
        server.kill()
        server.wait()
    _all_answered(stack, printed, before)


def _answers(temporal: Path, port: int) -> bool:
    command = [str(temporal), "operator", "cluster", "health", "--address", f"127.0.0.1:{port}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_webhook_wakes_a_dbos_workflow(stack: Stack, tmp_path: Path) -> None:
    before = _batches(stack)
    _all_answered(stack, _run("dbos", stack, tmp_path), before)


def test_airflows_operator_for_openai_runs_a_batch(stack: Stack, tmp_path: Path) -> None:
    before, url = _batches(stack), str(stack.client.base_url).rstrip("/")
    connection = f'{{"conn_type": "openai", "host": "{url}/v1", "password": "{key_of(stack)}"}}'
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
    _all_answered(stack, _run("airflow", stack, tmp_path, more, bridges=dags), before)


def test_a_prefect_flow_polls_its_batch(stack: Stack, tmp_path: Path) -> None:
    before = _batches(stack)
    patient = {"PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120"}
    _all_answered(stack, _run("prefect", stack, tmp_path, {"POLL_SECONDS": "0.2", **patient}), before)
