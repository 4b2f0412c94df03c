"""The documentation's samples for receivers, run with a real webhook."""

import re
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import processes
from app.db.pool import Database
from app.settings import Settings
from testing.waiting import wait_for
from tests.clients import node
from tests.clients.support import forged_body, signed_webhook
from tests.system.stack import Account
from tests.webhooks.support import Received

ROOT = Path(__file__).parents[2]
PAGE = "docs/webhooks.md"
SUBSCRIPTIONS = "/event_subscriptions/subscriptions"
QUEUE_SUBSCRIPTION = {
    "name": "mine",
    "source": {"type": "workersAi.model"},
    "destination": {"type": "queues.queue", "queue_id": "q1"},
    "events": ["batch.queued", "batch.succeeded"],
}


def sample(page: str, language: str, word: str, **values: str) -> str:
    """The block of a page that holds `word`, with what a reader has to fill in."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    for placeholder, value in values.items():
        found = re.sub(rf"{placeholder}_…", value, found)
    return str(found)


def loaded(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "sample", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("page", "word", "shape", "printed"),
    [
        (
            PAGE,
            'Webhook("whsec_…").verify',
            "workers_ai",
            "cf.workersAi.model.batch.succeeded",
        ),
        (PAGE, "unwrap", "openai", "batch.completed"),
    ],
)
async def test_a_hook(
    database: Database,
    settings: Settings,
    capsys: pytest.CaptureFixture[str],
    page: str,
    word: str,
    shape: str,
    printed: str,
) -> None:
    got, (secret,) = await signed_webhook(database, settings, shape)
    hook = loaded(sample(page, "python", word, whsec=secret))["hook"]
    capsys.readouterr()
    hook(got.body, got.headers)
    assert capsys.readouterr().out.startswith(printed + " ")
    with pytest.raises(Exception, match="signature"):
        hook(forged_body(got), got.headers)


async def test_the_receiver_in_python(
    database: Database, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    got, (secret,) = await signed_webhook(database, settings, "workers_ai")
    app = loaded(sample(PAGE, "python", "FastAPI", whsec=secret))["app"]
    capsys.readouterr()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://receiver") as client:
        for _ in range(2):
            answer = await client.post("/hooks", content=got.body, headers=got.headers)
            assert answer.status_code == 204
        assert (await client.post("/hooks", content=forged_body(got), headers=got.headers)).status_code == 401
    assert capsys.readouterr().out.count("cf.workersAi.model.batch.succeeded") == 1


async def test_the_receiver_in_javascript(
    database: Database, settings: Settings, node_packages: None, tmp_path: Path
) -> None:
    got, (secret,) = await signed_webhook(database, settings, "standard")
    port = processes.free_port()
    file = node.FOLDER / f".{tmp_path.name}-{port}.mjs"  # beside its packages
    file.write_text(sample(PAGE, "js", "createServer", whsec=secret).replace("8080", str(port)))
    with subprocess.Popen(["node", file], stdout=subprocess.PIPE, text=True) as process:
        try:
            _wait_for(port)
            assert _post(port, got, got.body) == 204
            assert _post(port, got, forged_body(got)) == 401
            assert process.stdout is not None
            assert process.stdout.readline() == "batch.succeeded\n"
        finally:
            process.kill()
            file.unlink()


def _post(port: int, got: Received, body: bytes) -> int:
    skipped = {"host", "content-length", "accept-encoding"}
    headers = {name: value for name, value in got.headers.items() if name not in skipped}
    return httpx.post(f"http://127.0.0.1:{port}/", content=body, headers=headers).status_code


def _wait_for(port: int) -> None:
    wait_for(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, f"port {port}")


def test_fetching(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    code = sample(PAGE, "python", "process_events")
    for placeholder, value in (
        ("http://127.0.0.1:8700", account.url),
        ("sk_sw_…", account.key),
        ("local", account.name),
    ):
        code = code.replace(placeholder, value)
    names = loaded(code)
    api = names["api"]
    made = api.post(SUBSCRIPTIONS, json=QUEUE_SUBSCRIPTION).raise_for_status().json()["result"]
    try:
        account.submit([{"prompt": "hi"}])
        names["process_events"]()
        assert "cf.workersAi.model.batch.queued" in capsys.readouterr().out
    finally:
        api.delete(f"{SUBSCRIPTIONS}/{made['id']}").raise_for_status()


def test_a_batch_of_openai(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", account.url + "/v1")
    monkeypatch.setenv("OPENAI_API_KEY", account.key)
    loaded(sample("README.md", "python", "client.batches.create"))
    assert '"content":"echo: Hello"' in capsys.readouterr().out


def test_the_snippets_of_conversations(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would paste them."""
    page = (ROOT / "docs/conversations.md").read_text()
    page = page.replace("sk_sw_…", account.key).replace("http://127.0.0.1:8700", account.url)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/conversations.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "echo: What is my name?",
        *("user My name is Ada.", "assistant echo: My name is Ada."),
        *("user What is my name?", "assistant echo: What is my name?"),
        "echo: Another one.",
        *("completed", "completed"),
    ]


def test_the_snippets_of_openais_surface(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as a reader would paste them."""
    page = (
        (ROOT / "docs/openai.md")
        .read_text()
        .replace("sk_sw_…", account.key)
        .replace("http://127.0.0.1:8700", account.url)
    )
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        exec(compile(block, "docs/openai.md", "exec"), names)
    estimate, text, flex = capsys.readouterr().out.splitlines()[-3:]
    assert "file.estimate" in estimate
    assert (text, flex) == ("echo: Hello", "flex echo: Hello")
