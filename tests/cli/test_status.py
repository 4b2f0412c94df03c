"""Claims about `slackwater status`: the API's status on one screen."""

import io
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from app import clock, processes
from app.batches import installation_status
from app.cli import status
from app.cli.data_dir_lock import owned, refuse_second
from app.duties.schedule import BY_NAME
from app.duties.standing import Standing
from app.settings import Settings
from app.user_errors import Failure
from testing.fakes.installation import CALM, MISSING, engine


@contextmanager
def api(body: str, code: int = 200) -> Iterator[Settings]:
    """Settings of an installation whose API answers this to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code if self.path == "/status" else 404)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, TemporaryDirectory() as data_dir:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Settings(port=server.server_port, data_dir=Path(data_dir))  # where nobody has logged in
        server.shutdown()


def shown(document: dict[str, Any], *, terminal: bool = False, **options: bool) -> tuple[int, str]:
    """Exit code and screen, 80 columns wide."""
    console = Console(file=(screen := io.StringIO()), width=80, force_terminal=terminal, no_color=True)
    with api(json.dumps(document)) as settings:
        code = status.report(settings, console, **{"as_json": False, **options})
    return code, Text.from_ansi(screen.getvalue()).plain


def test_one_screen_tells_parts_engines_and_queue_and_fits_80_columns() -> None:
    code, text = shown(installation_status.describe([engine(name="gpu-7", max_model_len=131072)], CALM), terminal=True)
    assert code == 0
    assert text.startswith("ok · Slackwater ")
    assert "steward ok" in text
    assert "0 open batches" in text
    assert "gpu-7 ready · attached · toy, 131,072 tokens · vLLM 0.32.0" in text
    assert "gpu-7 takes batch work, for 40 s" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    assert len(text.splitlines()) <= 24


def test_problems_come_with_what_to_do_and_down_is_exit_code_1() -> None:
    code, text = shown(installation_status.describe([engine(**MISSING)], CALM))
    assert code == 1
    assert text.startswith("down · ")
    assert "engine-0: The engine serves a, not b.\n→ Correct it." in text


def test_the_first_words_say_that_an_engine_is_drained() -> None:
    _, text = shown(installation_status.describe([engine(intake="draining", reason="draining")], CALM))
    assert text.startswith("down · engine-0 is drained · Slackwater ")
    assert "engine-0 ready, drained · attached" in text


def test_an_engine_that_is_started_again_is_shown_with_how_it_ended() -> None:
    told = engine(mode="managed", state="down", reason="engine_down", detail="it was killed (SIGKILL)", held_seconds=2)
    _, text = shown(installation_status.describe([told], CALM))
    assert "engine-0 starting · managed" in text
    assert "engine-0 does not answer, for 2 s: it was killed (SIGKILL), and is started again" in text
    assert "protection" not in text.partition("engine-0")[2]  # it has not said yet


def test_warnings_are_shown_with_their_remedy_and_exit_code_0() -> None:
    code, text = shown(installation_status.describe([engine(mode="attached", protection="outside")], CALM))
    assert (code, text.split()[0]) == (0, "warning")
    assert "Warning: engine-0: Synchronous requests are protected from outside the engine only (L1)" in text
    assert "→ Install and switch on the plug-in" in text


def test_degraded_is_exit_code_0() -> None:
    code, text = shown(installation_status.describe([engine(), engine(name="other", **MISSING)], CALM))
    assert (code, text.split()[0]) == (0, "degraded")


def test_json_is_the_apis_own_document() -> None:
    document = installation_status.describe([engine()], CALM)
    code, text = shown(document, as_json=True)
    assert (code, json.loads(text)) == (0, document)


def test_a_database_that_is_away_is_shown_without_numbers() -> None:
    code, text = shown(installation_status.describe((), None))
    assert code == 1
    assert "database away" in text
    assert "queue\tunknown" in text.splitlines()


def test_a_pipe_gets_each_fact_in_one_line_without_padding() -> None:
    name = "gpu-" + "7" * 90
    console = Console(file=(pipe := io.StringIO()), width=80)
    status.show(installation_status.describe([engine(name=name)], CALM), "http://127.0.0.1:1", console)
    _, blank, parts, callers, queue, told = pipe.getvalue().splitlines()
    assert (blank, parts.split("\t")[0]) == ("", "parts")
    assert callers == "callers\tWhether callers are protected is not known."
    assert queue == "queue\t0 open batches"
    assert told.startswith(
        f"engine\t{name} ready · attached · toy, 8,192 tokens · vLLM 0.32.0 · {name} takes batch work"
    )
    assert told.endswith("batch may hold 30 of 32 slots · protection inside the engine")


def test_work_that_waits_only_for_money_is_said_to() -> None:
    held = replace(CALM, open_batches=3, moneyless=2)
    _, text = shown(installation_status.describe([engine()], held))
    assert "2 wait only for money of a budget" in text


def test_of_an_engine_without_a_worker_no_slots_and_no_allowance_are_shown() -> None:
    _, text = shown(installation_status.describe([engine(alive=False, silent_seconds=90.0)], CALM))
    assert "engine-0 has no worker: the last report of one was 90 s ago" in text
    assert "batch may hold" not in text


def test_of_a_full_engine_the_slots_are_named_once() -> None:
    full = engine(reason="full", signal="load", value=32.0, threshold=32.0)
    console = Console(file=(pipe := io.StringIO()), width=80)
    status.show(installation_status.describe([full], CALM), "http://127.0.0.1:1", console)
    told = pipe.getvalue().splitlines()[-1]
    assert "32 usable slots" in told
    assert "batch may hold 30 · protection" in told


def test_duties_are_shown_with_their_last_success_their_length_and_their_next_run() -> None:
    now = clock.now()
    done = Standing(
        BY_NAME["ledger"], now, now - timedelta(minutes=3), 1500, None, None, now + timedelta(minutes=7), 180
    )
    failing = Standing(BY_NAME["days"], now, None, None, now, "StorageError: away", now, 180)
    document = installation_status.describe([engine()], CALM, [done, failing])
    _, text = shown(document)
    assert "duties\tdays failing; days not done yet" in text
    _, text = shown(document, only_duties=True)
    assert text.splitlines() == [
        "ledger done 3 min ago in 1.5 s · next in 7 min",
        "days not done yet · due now · fails: StorageError",
    ]


def test_an_api_that_is_away_is_said_with_how_to_start_it(tmp_path: Path) -> None:
    settings = Settings(port=processes.free_port(), data_dir=tmp_path)
    with pytest.raises(Failure, match=f"http://127.0.0.1:{settings.port} does not answer") as failure:
        status.fetch(settings)
    assert "slackwater up" in failure.value.remedy
    assert "SLACKWATER_URL" in failure.value.remedy


def test_an_api_that_up_is_starting_is_waited_for_and_not_started_again(tmp_path: Path) -> None:
    settings = Settings(port=processes.free_port(), data_dir=tmp_path)
    with owned(settings), pytest.raises(Failure, match="does not answer") as failure:
        status.fetch(settings)
    assert f"`slackwater up` runs (pid {os.getpid()})" in failure.value.remedy


def test_while_a_demo_runs_its_own_api_is_named(tmp_path: Path) -> None:
    mine, demos = (Settings(port=processes.free_port(), data_dir=tmp_path) for _ in range(2))
    where = f"http://127.0.0.1:{demos.port}"
    with owned(demos, "demo"):
        with pytest.raises(Failure, match="does not answer") as failure:
            status.fetch(mine)
        assert failure.value.remedy.startswith(
            f"`slackwater demo` runs (pid {os.getpid()}), whose own API is at {where} until it ends."
        )
        with pytest.raises(Failure, match=f"already runs on {tmp_path}: `slackwater demo` at {where}, pid"):
            refuse_second(mine)
    with owned(demos), pytest.raises(Failure, match="does not answer") as failure:
        status.fetch(mine)
    assert failure.value.remedy.endswith(f"with its API at {where}: set SLACKWATER_URL to that.")


@pytest.mark.parametrize(("body", "code"), [("<html>", 200), ("{}", 404)])
def test_something_else_on_the_port_is_not_taken_for_the_api(body: str, code: int) -> None:
    with api(body, code) as settings, pytest.raises(Failure, match="no Slackwater status"):
        status.fetch(settings)


def test_the_url_of_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    with api(json.dumps(installation_status.describe([engine()], CALM))) as settings:
        for end in ("/", "/v1", "/v1/"):
            monkeypatch.setenv("SLACKWATER_URL", f"http://127.0.0.1:{settings.port}{end}")
            assert status.fetch(Settings(port=processes.free_port()))["status"] == "ok"
