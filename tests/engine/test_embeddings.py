"""A real pooling engine: a managed vLLM with an encoder answers all forms, synchronous and queued alike."""

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.app import create_app
from app.crypto import secret_key
from app.db.pool import Database
from app.engines import catalogue
from app.engines.embeddings import cosine
from app.settings import Settings
from app.tenants import service as tenants
from testing.waiting import LIMIT_SECONDS, eventually, is_ok
from tests.api.embedding import EMBEDDER, RUN, answered, with_embedder, working
from tests.engine import tiny
from workers.gpu.managed_engine import ManagedEngine

pytestmark = pytest.mark.slow

TEXTS = ["a tide", "an orange cloud", "the llama"]
CONTEXTS = [{"text": text} for text in TEXTS]


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """The catalogue with the tiny model, whose folder is there."""
    tiny.write(tmp_path / "models" / "tiny-bert")
    return with_embedder(settings, tmp_path, tiny.LAUNCH)


@pytest.fixture
async def client(settings: Settings, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """The API, beside a worker that has started the engine and found it ready."""
    async with database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(settings), "acme", "test")
    app, headers = create_app(settings), {"authorization": f"Bearer {key}"}
    model = catalogue.load(settings.models_file).resolve(EMBEDDER)
    assert model is not None
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers, timeout=LIMIT_SECONDS) as client,
        working(settings, database, ManagedEngine(settings, model)),
    ):
        await eventually(lambda: client.post(RUN, json={"text": "a"}), until=is_ok)
        yield client


async def asked(client: httpx.AsyncClient, item: dict[str, Any]) -> dict[str, Any]:
    """The result of a synchronous call."""
    answer = await client.post(RUN, json=item)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["result"]
    return found


async def test_a_real_pooling_engine_answers_all_forms_synchronous_and_queued(client: httpx.AsyncClient) -> None:
    vectors = await asked(client, {"text": TEXTS})
    assert vectors["shape"] == [3, tiny.DIMENSIONS]
    assert vectors["usage"]["prompt_tokens"] == 7
    assert all(math.hypot(*vector) == pytest.approx(1, abs=1e-3) for vector in vectors["data"])
    assert cosine(vectors["data"][0], vectors["data"][2]) < 0.999

    contexts = await asked(client, {"contexts": CONTEXTS})
    assert (contexts["shape"], contexts["pooling"]) == ([3, tiny.DIMENSIONS], "mean")
    assert contexts["response"] == [pytest.approx(vector, abs=1e-4) for vector in vectors["data"]]

    scores = await asked(client, {"query": TEXTS[1], "contexts": CONTEXTS})
    expected = [cosine(vectors["data"][1], vector) for vector in vectors["data"]]
    assert [each["score"] for each in scores["response"]] == pytest.approx(expected, abs=1e-4)
    assert scores["response"][1]["score"] == pytest.approx(1, abs=1e-4)

    long = "tide " * 200
    refused = await client.post(RUN, json={"text": long})
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, 5006)
    cut = await asked(client, {"text": long, "truncate_inputs": True})
    assert cut["usage"]["prompt_tokens"] == tiny.LONGEST

    items = [{"text": TEXTS}, {"contexts": CONTEXTS}, {"query": TEXTS[1], "contexts": CONTEXTS}, {"text": long}]
    result = await answered(client, items)
    *good, bad = result["responses"]
    assert [each["success"] for each in good] == [True, True, True]
    assert (bad["success"], bad["error"]["code"]) == (False, 5006)
    assert good[0]["result"]["data"] == [pytest.approx(vector, abs=1e-4) for vector in vectors["data"]]
    assert good[1]["result"]["response"] == [pytest.approx(vector, abs=1e-4) for vector in vectors["data"]]
    assert [each["score"] for each in good[2]["result"]["response"]] == pytest.approx(expected, abs=1e-4)
    assert result["usage"]["prompt_tokens"] == 7 + 7 + 10
