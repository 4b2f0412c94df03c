"""A catalogue with an embedding model, and a worker that serves it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from app.db.pool import Database
from app.engines import catalogue
from app.settings import DEMO_MODELS, Settings
from testing.waiting import eventually
from tests.gpu.world import Running, tend
from workers.gpu.worker import WorkerEngine

EMBEDDER = "@cf/test/embedder"
RUN = f"/client/v4/accounts/acme/ai/run/{EMBEDDER}"
ENTRY = f"""
[models."{EMBEDDER}"]
aliases = ["embedder"]
description = "Vectors for tests."
task = "text-embeddings"
context_window = 64
capabilities = ["async_queue"]
"""


def with_embedder(settings: Settings, folder: Path, more: str = "") -> Settings:
    """Settings whose models file has the embedding model too; `more` goes into its table."""
    file = folder / "models.toml"
    file.write_text(DEMO_MODELS.read_text() + ENTRY + more)
    return settings.model_copy(update={"models_file": file})


@asynccontextmanager
async def working(settings: Settings, database: Database, engine: WorkerEngine) -> AsyncIterator[Running]:
    """A worker of the embedding model with this engine, and a steward."""
    model = catalogue.load(settings.models_file).resolve(EMBEDDER)
    assert model is not None
    steward = asyncio.create_task(tend(database))
    running = Running(settings, database, model, engine)
    try:
        yield running
    finally:
        await running.stop()
        steward.cancel()


async def answered(client: httpx.AsyncClient, items: list[dict[str, Any]]) -> dict[str, Any]:
    """The final result of a batch of these items."""
    submitted = await client.post(f"{RUN}?queueRequest=true", json={"requests": items})
    assert submitted.status_code == 200, submitted.text
    request = {"request_id": submitted.json()["result"]["request_id"]}
    final = await eventually(
        lambda: client.post(RUN, json=request), until=lambda answer: "status" not in answer.json()["result"]
    )
    return dict(final.json()["result"])
