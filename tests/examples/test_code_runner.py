"""The sandbox of the example that runs code, on a real bubblewrap; and what it takes from events and from what waits."""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from app.processes import free_port
from examples import code_runner
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.needs import missing, unable
from tests.system.stack import MODEL, Account
from tests.webhooks.support import receiving, statuses

ROOT = Path(__file__).parents[2]


def _bwrap() -> str | None:
    own = ROOT / ".tools/bin/bwrap"
    return str(own) if own.exists() else shutil.which("bwrap")


@pytest.fixture(scope="module")
def namespaces() -> None:
    """Code can be run apart. Skips where it cannot."""
    bwrap = _bwrap()
    if bwrap is None or shutil.which("prlimit") is None:
        missing("bubblewrap or prlimit is not installed: deploy/install-tools.sh bwrap")
    tried = subprocess.run([bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
    if tried.returncode:
        unable(f"this machine makes no namespaces: {tried.stderr.decode().strip()}")


sandboxed = pytest.mark.usefixtures("namespaces")


@pytest.fixture
def sandbox(tmp_path: Path) -> code_runner.Sandbox:
    return code_runner.Sandbox(tmp_path, _bwrap() or "", run_seconds=10)


@sandboxed
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', PORT), 2)", "OSError|Network is unreachable|refused"),
        ("open('/usr/x', 'w')", "Read-only file system"),
        ("open('/x', 'w')", "Read-only file system|Permission denied"),
        (f"open({str(ROOT / 'pyproject.toml')!r})", "No such file"),
        ("open('/etc/passwd')", "No such file"),
        ("bytearray(2_000_000_000)", "MemoryError"),
        ("open('big', 'wb').write(bytes(40_000_000))", "File too large"),
        ("import os; os.kill(1, 9); print(sorted(p for p in os.listdir('/proc') if p.isdecimal()))", r"^\['1', '2'"),
        ("import os; print(dict(os.environ).keys() - {'PATH', 'PWD', 'LC_CTYPE'})", r"^set\(\)"),
    ],
)
def test_code_reaches_nothing_of_its_host(
    sandbox: code_runner.Sandbox, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_HOST", "x")
    with receiving(statuses(200)) as listener:
        found = sandbox.run(code.replace("PORT", str(listener.port)), "s")
    assert re.search(message, found["output"], re.MULTILINE), found
    assert listener.requests == []


@sandboxed
def test_a_session_keeps_its_files_for_a_while_and_no_other_sees_them(tmp_path: Path) -> None:
    sandbox = code_runner.Sandbox(tmp_path, _bwrap() or "")
    assert sandbox.run("open('kept', 'w').write('42')", "a")["exit_code"] == 0
    assert sandbox.run("print(open('kept').read())", "a") == {"exit_code": 0, "output": "42\n"}
    assert sandbox.run("open('kept')", "b")["exit_code"] == 1
    idle = code_runner.Sandbox(tmp_path, _bwrap() or "", idle_seconds=-1)
    assert idle.run("open('kept')", "a")["exit_code"] == 1


@sandboxed
def test_code_that_does_not_end_is_stopped_and_what_it_prints_is_cut(tmp_path: Path) -> None:
    sandbox = code_runner.Sandbox(tmp_path, _bwrap() or "", run_seconds=1)
    found = sandbox.run("while True: print('x' * 1000, flush=True)", "s")
    assert found["exit_code"] != 0
    assert len(found["output"]) < code_runner.OUTPUT_CHARACTERS + 50
    assert sandbox.run("import time; time.sleep(60)", "s")["exit_code"] == 124


class FakeApi:
    """One pipeline in which items of two stages wait."""

    def __init__(self, *items: int) -> None:
        self.items, self.answers, self.answered = items, dict[int, Any](), threading.Event()

    def open_pipelines(self) -> list[str]:
        return ["pipe_1"]

    def waiting(self, pipeline: str) -> Iterator[dict[str, Any]]:
        for n in self.items:
            yield {"stage": "run", "item": n}
        yield {"stage": "review", "item": 9}

    def one(self, pipeline: str, stage: str, item: int) -> dict[str, Any] | None:
        if item in self.answers:
            return None
        return {"id": f"{stage}/{item}", "item": item, "custom_id": "c", "body": {"code": f"print({item})"}}

    def answer(self, pipeline: str, item: dict[str, Any], answer: Any) -> bool:
        assert item["item"] not in self.answers
        self.answers[item["item"]] = answer
        if len(self.answers) == len(self.items) + 1:
            self.answered.set()
        return True


class Echo:
    def run(self, code: str, session: str) -> dict[str, str]:
        return {"code": code, "session": session}


def test_what_was_missed_and_what_is_signed_is_answered_once() -> None:
    secret = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
    api = FakeApi(0, 1)
    runner = code_runner.Runner(api, Echo(), "run")
    with code_runner.listening(0, secret, runner) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        runner.catch_up()
        statuses = [_deliver(server.server_port, secret, item) for item in (1, 2, 2)]
        forged = _deliver(server.server_port, "whsec_" + "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4", 3)
        assert api.answered.wait(LIMIT_SECONDS)
        server.shutdown()
    assert (statuses, forged) == ([204, 204, 204], 401)
    assert api.answers == {n: {"code": f"print({n})", "session": "pipe_1/c"} for n in range(3)}


def test_an_item_that_is_asked_again_is_answered_again() -> None:
    api = FakeApi(0)
    runner = code_runner.Runner(api, Echo(), "run")
    for _ in range(2):
        api.answers.clear()
        runner.take("pipe_1", "run", 0)
        wait_for(lambda: api.answers and not runner._taken, "an answer")


def test_what_waits_is_found_in_all_open_pipelines(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {
        "?limit=100": {"data": [{"id": "pipe_3", "ended_at": None}, {"id": "pipe_2", "ended_at": 7}], "has_more": True},
        "?limit=100&after=pipe_2": {"data": [{"id": "pipe_1", "ended_at": None}], "has_more": False},
    }
    pages["?limit=100"]["last_id"] = "pipe_2"
    api = code_runner.Slackwater("http://127.0.0.1:8700", "sk_sw_x")
    monkeypatch.setattr(api, "_call", pages.__getitem__)
    assert api.open_pipelines() == ["pipe_3", "pipe_1"]


def test_a_sweep_leaves_a_session_alone_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = code_runner.Sandbox(tmp_path, idle_seconds=-1)

    def bounded(_: list[str]) -> str:
        sandbox.sweep()
        return str([each.is_dir() for each in tmp_path.iterdir()])

    monkeypatch.setattr(sandbox, "_bounded", bounded)
    assert sandbox.run("", "a") == "[True]"
    sandbox.sweep()
    assert list(tmp_path.iterdir()) == []


def _deliver(port: int, secret: str, item: int) -> int:
    body = json.dumps({"type": "item.waiting", "data": {"pipeline": "pipe_1", "stage": "run", "item": item}})
    now = datetime.now(UTC)
    signature = Webhook(secret).sign("evt_1", now, body)
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    return httpx.post(f"http://127.0.0.1:{port}/", content=body, headers=headers, trust_env=False).status_code


@pytest.mark.slow
@sandboxed
def test_a_pipeline_gets_its_answers_from_the_runner_by_webhook_and_what_waited_before(account: Account) -> None:
    port = free_port()
    first = _pipeline(account, "6 * 7")
    wait_for(lambda: _get(account, f"/v1/pipelines/{first}/waiting")["data"], what="an item that waits")
    body = {
        "name": "runner",
        "source": {"type": "workersAi.model"},
        "destination": {"type": "webhook", "url": f"http://127.0.0.1:{port}/", "format": "standard"},
        "events": ["item.waiting"],
    }
    made = account.client.post(f"{account.path}/event_subscriptions/subscriptions", json=body)
    secret = made.json()["result"]["destination"]["secret"]
    command = [sys.executable, "examples/code_runner.py", "--url", account.url, "--key", account.key]
    command += ["--secret", secret, "--port", str(port), "--bwrap", _bwrap() or ""]
    runner = subprocess.Popen(command, cwd=ROOT)
    try:
        assert _answer(account, first) == "echo: It printed 42\n"
        assert _answer(account, _pipeline(account, "'4' + '3'")) == "echo: It printed 43\n"
    finally:
        runner.kill()
        runner.wait()


def _pipeline(account: Account, expression: str) -> str:
    """The id of a pipeline that has code run outside, and asks the engine about it."""
    outside = {"id": "run", "external": {"timeout": "1h"}, "body": {"code": "{{item.code}}"}}
    message = {"role": "user", "content": "It printed {{json.output}}"}
    after = {"id": "explain", "model": MODEL, "body": {"messages": [message]}}
    items = [{"custom_id": "a", "code": f"print({expression})"}]
    made = account.client.post("/v1/pipelines", json={"input": {"items": items}, "stages": [outside, after]})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def _get(account: Account, path: str) -> Any:
    return account.client.get(path).raise_for_status().json()


def _answer(account: Account, pipeline: str) -> str:
    """What the engine said in the end."""
    wait_for(lambda: _get(account, f"/v1/pipelines/{pipeline}")["status"] == "completed", f"the end of {pipeline}")
    line = json.loads(account.client.get(f"/v1/pipelines/{pipeline}/results").text)
    return str(line["answer"]["choices"][0]["message"]["content"])
