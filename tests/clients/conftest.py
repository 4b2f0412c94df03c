"""A running installation with two engines, one of them for embeddings, and a worker beside each; and how batches are made.

Where `CLIENTS_BASE_URL` is set, the installation of another test run is used (`handed_on`) instead of one of our own.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from app import processes
from app.environment import child_environment
from app.settings import PACKAGE
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.clients import node
from tests.clients.batches import BASES, EMBEDDER, ENDLESS, REFUSAL, REFUSED, SLOW
from tests.clients.handed_on import key_of
from tests.system.stack import Stack, running

ENTRY = f"""
[models."{EMBEDDER}"]
task = "text-embeddings"
context_window = 512
shape = "native"
capabilities = ["async_queue"]
price = {{ input = 0.01, cached_input = 0.01, output = 0 }}
"""
RULES = [
    {"match": ENDLESS, "mode": "hang"},
    {"match": REFUSED, "mode": "status", "status": 400, "message": REFUSAL},
    {"match": SLOW, "mode": "answer", "pause": 0.2},
]


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
        urllib.request.urlopen(told, timeout=LIMIT_SECONDS).close()


def _received() -> Stack:
    told = {name: os.environ[f"CLIENTS_{name}"] for name in ("BASE_URL", "API_KEY", "DATA_DIR")}
    stack = Stack(Path(told["DATA_DIR"]).parent)
    stack.client.base_url = httpx.URL(told["BASE_URL"])
    stack.client.headers["authorization"] = f"Bearer {told['API_KEY']}"
    return stack


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
        wait_for(lambda: stack.query(ready)[0][0] == 2, f"both engines ready; see {stack.log}")
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
    return key_of(stack)


@pytest.fixture(scope="module", params=[BASES[0], *(pytest.param(base, marks=pytest.mark.slow) for base in BASES[1:])])
def client(request: pytest.FixtureRequest, base_url: str, api_key: str) -> Iterator[OpenAI]:
    """OpenAI's client on each base URL, without retries. `test_python_openai` tries both each time."""
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
