"""Embedding models on the Workers AI routes, synchronous and queued: the three forms and their results."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from app.batches.validation.schemas import output_schema
from app.db.pool import Database
from app.engines import catalogue
from app.settings import Settings
from testing.fakes.engine import FakeEngine
from tests.api.embedding import EMBEDDER, RUN, answered, with_embedder, working
from tests.api.embedding_items import CONTEXTS, FORMS, REFUSED, SCORES, TEXTS
from tests.api.support import RUN as TEXT_RUN
from tests.api.support import SUBMIT
from tests.gateway.support import Registry
from workers.gpu.attached_engine import AttachedEngine


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return with_embedder(settings, tmp_path)


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine(model=EMBEDDER) as engine:
        yield engine


def check(result: dict[str, Any], expected: dict[str, Any], settings: Settings) -> None:
    """The result of one item is this, has usage, and keeps the schema that the API publishes."""
    model = catalogue.load(settings.models_file).resolve(EMBEDDER)
    assert model is not None
    jsonschema.validate(result, output_schema(model))
    usage = result.pop("usage")
    assert usage["prompt_tokens"] > 0
    assert result == expected


@pytest.mark.parametrize(("item", "expected"), FORMS)
async def test_each_form_is_answered_in_its_own_shape(
    client: httpx.AsyncClient,
    engine: FakeEngine,
    database: Database,
    settings: Settings,
    item: dict[str, Any],
    expected: dict[str, Any],
) -> None:
    await Registry(database).ready(engine)
    answer = await client.post(RUN, json=item)
    assert answer.status_code == 200, answer.text
    check(answer.json()["result"], expected, settings)


async def test_the_engine_gets_the_query_in_front_of_the_contexts_and_none_of_our_fields(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database
) -> None:
    await Registry(database).ready(engine)
    await client.post(RUN, json={**SCORES, "truncate_inputs": True, "session_id": "s", "pooling": "mean"})
    [body] = engine.bodies
    assert body.pop("cache_salt")
    assert body == {
        "input": ["a llama", "an orange cloud", "a llama"],
        "encoding_format": "float",
        "truncate_prompt_tokens": -1,
        "model": EMBEDDER,
        "priority": 0,
    }


@pytest.mark.parametrize("object_kb", [0, 1])
async def test_queued_items_of_all_forms_answer_what_a_synchronous_call_would(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, settings: Settings, object_kb: int
) -> None:
    """`object_kb` 1: what was asked lies in the object store, and is needed there again when the result is read."""
    changes = {"engine_url": engine.url, "object_kb": object_kb, "sample_seconds": 0.05}
    items = [{**item, "external_reference": "x" * 2000 * object_kb} for item, _ in FORMS]
    async with working(
        settings.model_copy(update=changes), database, AttachedEngine(settings.model_copy(update=changes))
    ):
        result = await answered(client, items)
    assert [each["success"] for each in result["responses"]] == [True] * len(FORMS)
    for each, (_, expected) in zip(result["responses"], FORMS, strict=True):
        check(each["result"], expected, settings)
    assert result["usage"]["prompt_tokens"] > 0
    assert result["usage"]["completion_tokens"] == 0
    assert all(body["priority"] == 10 for body in engine.bodies)


@pytest.mark.parametrize(("item", "message"), REFUSED)
async def test_what_breaks_a_rule_is_refused_naming_the_field_synchronous_and_queued(
    client: httpx.AsyncClient, item: dict[str, Any], message: str
) -> None:
    batch = {"requests": [{"text": "fine"}, item]}
    for url, body in ((RUN, item), (f"{RUN}?queueRequest=true", batch)):
        answer = await client.post(url, json=body)
        [error] = answer.json()["errors"]
        assert (answer.status_code, error["code"]) == (400, 5006)
        assert message in error["message"]
        assert "requests" not in body or error["message"].startswith("requests[1]")


async def test_embeddings_do_not_stream(client: httpx.AsyncClient) -> None:
    answer = await client.post(RUN, json={"text": "a", "stream": True})
    assert answer.status_code == 400
    assert "stream: embeddings cannot be streamed" in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("item", [TEXTS, {"contexts": CONTEXTS}, SCORES])
async def test_a_chat_model_refuses_an_embedding_item_naming_the_field(
    client: httpx.AsyncClient, item: dict[str, Any]
) -> None:
    for url, body in ((TEXT_RUN, item), (SUBMIT, {"requests": [item]})):
        answer = await client.post(url, json=body)
        message = answer.json()["errors"][0]["message"]
        assert answer.status_code == 400
        assert f"{next(iter(item))}: is for embedding models" in message
