"""Attached workers beside the real vLLM, and its catalogue."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from app import processes
from app.db.pool import Database
from app.engines import service as engines
from app.settings import DEMO_MODELS, SHIPPED_MODELS, Settings
from testing.fakes.engine import FakeEngine
from tests.gpu.world import MODEL, World, tend
from tests.queue import support
from tests.system.stack import Stack


def models_in(dtype: str, folder: Path) -> Path:
    """The catalogue with the engine's number format given, whatever this CPU computes fastest, and a smaller cache."""
    file, catalogue = folder / f"{dtype}.toml", SHIPPED_MODELS.read_text()
    for ours, here in (("{cpu_dtype}", dtype), ('KVCACHE_SPACE = "2"', 'KVCACHE_SPACE = "1"')):
        assert ours in catalogue
        catalogue = catalogue.replace(ours, here)
    file.write_text(DEMO_MODELS.read_text() + catalogue)
    return file


def engine_pids(stack: Stack) -> list[int]:
    """Every process of the managed engine."""
    mark = f"{os.path.realpath(stack.settings.data_dir)}:{stack.settings.engine_name}"
    return processes.marked("SLACKWATER_ENGINE", mark)


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
