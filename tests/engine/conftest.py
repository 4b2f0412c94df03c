"""One real vLLM for all tests of this folder, in float32 so that equal work gives equal tokens."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.crypto import secret_key
from app.db.pool import Database
from app.engines import service as engines
from app.engines.engine_key import engine_key
from app.settings import PACKAGE, Settings
from testing.fakes.engine import FakeEngine
from tests.gpu.conftest import MODEL, World, tend
from tests.queue import support
from tests.system.stack import Stack, running, wait_for

LOADING_SECONDS = 400  # the first run on a machine also fetches and converts the model


def models_in(dtype: str, folder: Path) -> Path:
    """The catalogue with the engine's number format given, whatever this CPU computes fastest."""
    file = folder / f"{dtype}.toml"
    file.write_text((PACKAGE / "models.toml").read_text().replace('"{cpu_dtype}"', f'"{dtype}"'))
    return file


@asynccontextmanager
async def attaching(url: str, settings: Settings, database: Database, key: str = "") -> AsyncIterator[World]:
    """A queue of its own beside a running engine: its workers attach to it, so the controller outside the engine rules."""
    async with database.durable() as conn:
        tenant = await support.make_tenant(conn)
        pool = await engines.ensure_pool(conn, MODEL)
    # Its law is not the point here: whatever the CPU's steps take, some requests may run.
    changes = {
        "engine_url": url,
        "engine_api_key": SecretStr(key),
        "engine_slots": 32,
        "idle_step_ms": 60_000,
        "batch_min_in_flight": 15,
    }
    steward = asyncio.create_task(tend(database))
    yield World(settings.model_copy(update=changes), database, FakeEngine(), tenant, pool)
    steward.cancel()


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """`slackwater up` with an engine of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with running(real_engine=True, models_file=models_in("float32", Path(folder)), idle_step_ms=60_000) as stack:
            yield stack


@pytest.fixture
def engine_url(stack: Stack) -> str:
    """Where the stack's engine answers, once it does."""
    ready = "select url from engine where state = 'ready'"
    return str(wait_for(lambda: stack.query(ready), LOADING_SECONDS, "the engine loaded")[0][0])


@pytest.fixture
def engine_token(stack: Stack, engine_url: str) -> str:
    """What the stack's engine wants to be shown."""
    return engine_key(stack.settings, secret_key(stack.settings), stack.settings.engine_name, "managed")


@pytest.fixture
async def world(engine_url: str, engine_token: str, settings: Settings, database: Database) -> AsyncIterator[World]:
    """An attached worker's world."""
    async with attaching(engine_url, settings, database, engine_token) as world:
        yield world
