"""A running installation with two engines, one of them for embeddings, and a worker beside each; and how batches are made.

Where `CLIENTS_BASE_URL` is set, the installation of another test run is used (`handed_on`) instead of one of our own.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Batch

from app import processes
from app.settings import PACKAGE, child_environment
from tests.clients import node
from tests.system.stack import ACCOUNT, MODEL, Stack, running, wait_for

EMBEDDER = "bge-test"
ENTRY = f"""
[models."{EMBEDDER}"]
task = "text-embeddings"
context_window = 512
shape = "native"
capabilities = ["async_queue"]
price = {{ input = 0.01, cached_input = 0.01, output = 0 }}
"""
# Prompts that the engine of text never answers, refuses, and answers slowly in a stream.
ENDLESS, REFUSED, SLOW = "never answer this", "refuse this", "take your time"
REFUSAL = "max_tokens is too large: 1000000."
RULES = [
    {"match": ENDLESS, "mode": "hang"},
    {"match": REFUSED, "mode": "status", "status": 400, "message": REFUSAL},
    {"match": SLOW, "mode": "answer", "pause": 0.2},
]
SECONDS = 120  # until a batch has ended, on a machine that is busy with other things too
NATIVE = "client/v4"
BASES = ("/v1", f"/{NATIVE}/accounts/{ACCOUNT}/ai/v1")


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """One installation for all clients."""
    if "CLIENTS_BASE_URL" in os.environ:
        yield _received()
        return
    with tempfile.TemporaryDirectory(prefix="slackwater-") as folder:
        models = Path(folder) / "models.toml"
        models.write_text((PACKAGE / "models.toml").read_text() + ENTRY)
        with running(models_file=models) as stack, _embedder(stack):
            yield stack


@pytest.fixture(scope="module", autouse=True)
def rules(stack: Stack) -> None:
    """The rules of the text engine, without those of earlier tests."""
    if "CLIENTS_BASE_URL" not in os.environ:
        told = urllib.request.Request(f"http://127.0.0.1:{stack.engine_port}/_script", json.dumps(RULES).encode())
        urllib.request.urlopen(told, timeout=SECONDS).close()


def handed_on(stack: Stack) -> dict[str, str]:
    """The environment in which another test run uses this installation."""
    return {
        "CLIENTS_BASE_URL": str(stack.client.base_url),
        "CLIENTS_API_KEY": _key(stack),
        "CLIENTS_DATA_DIR": str(stack.settings.data_dir),
    }


def _received() -> Stack:
    told = {name: os.environ[f"CLIENTS_{name}"] for name in ("BASE_URL", "API_KEY", "DATA_DIR")}
    stack = Stack(Path(told["DATA_DIR"]).parent)
    stack.client.base_url = httpx.URL(told["BASE_URL"])
    stack.client.headers["authorization"] = f"Bearer {told['API_KEY']}"
    return stack


def _key(stack: Stack) -> str:
    return str(stack.client.headers["authorization"]).removeprefix("Bearer ")


@contextlib.contextmanager
def _embedder(stack: Stack) -> Iterator[None]:
    """Run a second engine and its worker while the block runs."""
    port = processes.free_port()
    own = {"engine_name": "embedder", "engine_model": EMBEDDER, "engine_url": f"http://127.0.0.1:{port}"}
    environment = child_environment(stack.settings.model_copy(update=own), {})
    engine = [sys.executable, "-m", "testing.fakes.engine", "--model", EMBEDDER, "--port", str(port)]
    worker = [sys.executable, "-m", "workers.gpu"]
    with stack.log.open("ab") as log:
        parts = [subprocess.Popen(command, env=environment, stdout=log, stderr=log) for command in (engine, worker)]
    try:
        # The workers announce their engines once they are believed; only then do synchronous calls find them.
        ready = "select count(*) from engine where state = 'ready'"
        wait_for(lambda: stack.query(ready)[0][0] == 2, what=f"both engines ready; see {stack.log}")
        yield
    finally:
        for part in parts:
            part.kill()
            part.wait()


@pytest.fixture(scope="package")
def base_url(stack: Stack) -> str:
    """Where the API listens, without a path."""
    return str(stack.client.base_url).rstrip("/")


@pytest.fixture(scope="package")
def api_key(stack: Stack) -> str:
    """A key of the account."""
    return _key(stack)


@pytest.fixture(scope="module", params=BASES)
def client(request: pytest.FixtureRequest, base_url: str, api_key: str) -> Iterator[OpenAI]:
    """OpenAI's client on each base URL, without retries."""
    with OpenAI(api_key=api_key, base_url=f"{base_url}{request.param}", max_retries=0) as client:
        yield client


@pytest.fixture(scope="package")
def chat_model() -> str:
    """A name, with slashes, of a model that answers whole chat completions."""
    return "@cf/moonshotai/kimi-k2.5"


@pytest.fixture(scope="package")
def node_packages() -> None:
    """The JavaScript clients are installed. Skips where there is no Node."""
    if reason := node.missing():
        pytest.skip(reason)
    node.install()


@pytest.fixture(scope="package", autouse=True)
def nothing_inherited() -> Iterator[None]:
    """Clients read keys, addresses and proxies from the environment; here they get them from the tests alone."""
    names = [name for name in os.environ if name.startswith(("OPENAI_", "CLOUDFLARE_"))]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.delenv(name)
        patch.setenv("NO_PROXY", "*")
        yield


@pytest.fixture(scope="session", autouse=True)
def noted_client(record_testsuite_property: Any) -> None:
    """A report in XML says which client these tests have imported."""
    record_testsuite_property("openai", openai.__version__)
    record_testsuite_property("location", str(Path(openai.__file__).resolve()))


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def line(n: int, text: str | None = None, **changes: Any) -> dict[str, Any]:
    """A line of a batch file that says `text`."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": text or f"line {n}"}]}
    return {"custom_id": f"request-{n}", "method": "POST", "url": "/v1/chat/completions", "body": body} | changes


def uploaded(client: OpenAI, *lines: Any) -> str:
    """The id of a file of these lines; a text is a line as it is."""
    content = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return client.files.create(file=("input.jsonl", content.encode()), purpose="batch").id


def created(client: OpenAI, file_id: str, endpoint: str = "/v1/chat/completions", **more: Any) -> Batch:
    """A new batch of the file."""
    wish = {"input_file_id": file_id, "endpoint": endpoint, "completion_window": "24h"} | more
    return client.batches.create(**wish)


def ended(client: OpenAI, batch: Batch) -> Batch:
    """Wait until the batch has ended, and return it."""
    deadline = time.monotonic() + SECONDS
    while batch.status not in ("failed", "completed", "expired", "cancelled"):
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def lines_of(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    """The lines of a file; empty if there is no file."""
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()] if file_id else []


def shown(client: OpenAI, path: str) -> dict[str, Any]:
    """The API's raw answer at a path."""
    headers = {"authorization": f"Bearer {client.api_key}"}
    answer = httpx.get(f"{client.base_url}{path}", headers=headers, timeout=SECONDS, trust_env=False, verify=False)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def watched(client: OpenAI, requests: list[Any], **changes: Any) -> OpenAI:
    """The client with its usual retries; what it sends is noted in `requests`."""
    http_client = openai.DefaultHttpxClient(event_hooks={"request": [requests.append]}, verify=False)
    return client.with_options(http_client=http_client, **{"max_retries": 2} | changes)
