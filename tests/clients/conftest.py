"""A running installation with two engines, one of them for embeddings, and a worker beside each."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import processes
from app.settings import PACKAGE, child_environment
from tests.clients import node
from tests.system.stack import Stack, running, wait_for

EMBEDDER = "bge-test"
ENTRY = f"""
[models."{EMBEDDER}"]
task = "text-embeddings"
context_window = 512
shape = "native"
capabilities = ["async_queue"]
price = {{ input = 0.01, cached_input = 0.01, output = 0 }}
"""


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """One installation for all clients."""
    with tempfile.TemporaryDirectory(prefix="slackwater-") as folder:
        models = Path(folder) / "models.toml"
        models.write_text((PACKAGE / "models.toml").read_text() + ENTRY)
        with running(models_file=models) as stack, _embedder(stack):
            yield stack


@contextlib.contextmanager
def _embedder(stack: Stack) -> Iterator[None]:
    """A second engine and its worker, until the block is left."""
    port = processes.free_port()
    own = {"engine_name": "embedder", "engine_model": EMBEDDER, "engine_url": f"http://127.0.0.1:{port}"}
    environment = child_environment(stack.settings.model_copy(update=own), {})
    engine = [sys.executable, "-m", "tests.fakes.engine", "--model", EMBEDDER, "--port", str(port)]
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
    return str(stack.client.headers["authorization"]).removeprefix("Bearer ")


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
