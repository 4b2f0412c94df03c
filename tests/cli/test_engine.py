"""Claims about `slackwater engine …`, `--version` and shell completion."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from rich.console import Console

from app import clock
from app.cli import engine, version
from app.settings import Settings
from app.user_errors import Failure
from tests.cli.support import Run

MODEL = "smollm2-135m-instruct"


@pytest.fixture
def row(settings: Settings) -> Iterator[Callable[..., None]]:
    """Enters the installation's engine under a live worker, then changes its columns."""
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("insert into pool (model) values (%s)", (MODEL,))
        conn.execute(
            "insert into worker (worker_id, pool_id, host, pid, lease_until)"
            " overriding system value select 1, pool_id, 'gpu-host', 4711, now() + interval '1 hour' from pool"
        )
        conn.execute(
            "insert into engine (name, pool_id, url, mode, state, reason, worker_id, allowance, slots)"
            " select %s, pool_id, 'http://x', 'attached', 'ready', 'open', 1, 62, 64 from pool",
            (settings.engine_name,),
        )

        def change(**columns: Any) -> None:
            for name, value in columns.items():
                conn.execute(f"update engine set {name} = %s".encode(), (value,))

        yield change


def obeyed(row: Callable[..., None]) -> None:
    """As its worker reports an empty, drained engine a while later."""
    row(reason="draining", allowance=0, batch_in_flight=0, sync_in_flight=0, intake_since="2026-01-01")


@pytest.mark.usefixtures("row")
def test_engines_are_listed_within_80_columns_and_as_json(local: Run) -> None:
    listed = local("engine", "list").output
    assert all(part in listed for part in ("engine-0", "ready", MODEL, "0/62", "gpu-host:4711"))
    assert max(map(len, listed.splitlines())) <= 80
    [found] = json.loads(local("engine", "list", "--json").output)
    assert (found["name"], found["intake"], found["drained"]) == ("engine-0", "open", False)
    assert found["worker"] == {"host": "gpu-host", "pid": 4711}


def test_the_list_says_how_old_each_report_is_and_whose_worker_is_silent(
    local: Run, settings: Settings, row: Callable[..., None]
) -> None:
    assert "s ago" in local("engine", "list").output
    row(heartbeat_at=clock.now() - timedelta(minutes=3))
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("update worker set renewed_at = now() - interval '3 min', lease_until = now() + interval '1 min'")
    assert "silent for 3" in local("engine", "list").output


def test_of_an_engine_whose_worker_is_lost_no_allowance_reason_or_request_is_listed(
    local: Run, settings: Settings, row: Callable[..., None]
) -> None:
    row(heartbeat_at=clock.now() - timedelta(minutes=3), batch_in_flight=5, sync_in_flight=4)
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("update worker set renewed_at = now() - interval '3 min', lease_until = now() - interval '2 min'")
    listed = local("engine", "list").output
    assert "no worker" in listed
    assert "62" not in listed
    [found] = json.loads(local("engine", "list", "--json").output)
    assert (found["state"], found["reason"], found["allowance"], found["sync_in_flight"]) == (
        "down",
        "no_worker",
        None,
        None,
    )


def test_a_list_of_no_engines_says_where_they_come_from(local: Run) -> None:
    assert "slackwater up" in local("engine", "list").output
    assert json.loads(local("engine", "list", "--json").output) == []


def test_a_drain_is_shown_until_it_is_ended(local: Run, row: Callable[..., None]) -> None:
    assert "receives no new requests" in local("engine", "drain", "engine-0", "--no-wait").output
    assert "draining" in local("engine", "list").output
    obeyed(row)
    assert "drained" in local("engine", "list").output
    assert "is drained" in local("engine", "drain", "engine-0").output
    assert "receives requests again" in local("engine", "undrain", "engine-0").output
    assert json.loads(local("engine", "list", "--json").output)[0]["intake"] == "open"


@pytest.mark.usefixtures("row")
def test_drain_now_is_a_state_of_its_own_and_an_unknown_engine_is_refused_with_the_known_ones(local: Run) -> None:
    local("engine", "drain", "engine-0", "--now", "--no-wait")
    assert json.loads(local("engine", "list", "--json").output)[0]["intake"] == "returning"
    for verb in ("drain", "undrain"):
        refused = local("engine", verb, "engine-7")
        assert refused.exit_code == 1
        assert "no engine engine-7" in refused.output
        assert "engine-0" in refused.output


def waited(settings: Settings, pause: Callable[[float], None]) -> str:
    console = Console(file=io.StringIO(), width=80, record=True)
    engine.until_drained(settings, settings.engine_name, console, pause)
    return console.export_text()


def test_a_drain_waits_for_batch_and_synchronous_requests_and_counts_them(
    settings: Settings, row: Callable[..., None]
) -> None:
    engine.change(settings, "engine-0", "drain")
    row(batch_in_flight=3, sync_in_flight=1, intake_since="2026-01-01")
    steps: list[Callable[[], None]] = [
        lambda: row(reason="draining"),
        lambda: row(batch_in_flight=0),
        lambda: row(sync_in_flight=0),
    ]
    said = waited(settings, lambda _: steps.pop(0)())
    assert said.splitlines() == [
        "engine-0: its worker has not read the drain yet, 3 batch requests and 1 synchronous in flight",
        "engine-0: 3 batch requests and 1 synchronous in flight",
        "engine-0: 0 batch requests and 1 synchronous in flight",
    ]


@pytest.mark.usefixtures("row")
def test_whoever_waits_hears_that_it_was_undrained_meanwhile(settings: Settings) -> None:
    engine.change(settings, "engine-0", "drain")
    with pytest.raises(Failure, match="undrained meanwhile"):
        waited(settings, lambda _: engine.change(settings, "engine-0", "undrain"))


@pytest.mark.parametrize(
    ("arguments", "port"),
    [([], "8000"), (["--port", "9000"], "9000"), (["run"], "8000"), (["run", "--port", "9"], "9")],
)
def test_engine_alone_and_engine_run_start_vllm(
    local: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], port: str
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda _, command: became.append(command[1:]))
    local("engine", *arguments)
    assert became == [["-P", "-m", "workers.gpu.engine", port]]


def test_the_version_is_told(local: Run) -> None:
    assert local("--version").output == f"{version.text()}\n"
    assert version.text().startswith("slackwater 0.")


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`slackwater` as the installed script starts it."""
    script = tmp_path / "slackwater"
    script.write_text(f"#!{sys.executable}\nfrom app.cli.main import main\nmain()\n")
    script.chmod(0o755)
    return script


def test_bash_completes_commands_and_the_parts_that_have_logs(settings: Settings, command: Path) -> None:
    (settings.data_dir / "logs").mkdir()
    (settings.data_dir / "logs" / "gpu-worker.log").touch()
    shell = """
    eval "$(slackwater --show-completion)"
    complete -p slackwater
    COMP_WORDS=(slackwater engine dr) COMP_CWORD=2; _slackwater_completion slackwater; echo "${COMPREPLY[*]}"
    COMP_WORDS=(slackwater logs gp) COMP_CWORD=2; _slackwater_completion slackwater; echo "${COMPREPLY[*]}"
    """
    environment = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "PYTHONPATH": os.getcwd()}
    environment["SLACKWATER_DATA_DIR"] = str(settings.data_dir)
    done = subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, text=True, check=False)
    complete, verbs, parts = done.stdout.splitlines()
    assert "_slackwater_completion" in complete
    assert verbs.split() == ["drain"]
    assert parts.split() == ["gpu-worker"]
