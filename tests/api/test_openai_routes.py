"""OpenAI's routes, under the account and under /v1, with the unchanged openai client."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import openai
import pytest

from app.db.pool import Database
from app.settings import DEMO_MODELS, Settings
from testing.fakes.embeddings_and_responses import vector
from testing.fakes.engine import FakeEngine
from testing.waiting import eventually
from tests.gateway.support import Registry

MODEL = "smollm2-135m-instruct"
EMBEDDER = "bge-test"
BASES = ["http://api/v1", "http://api/client/v4/accounts/acme/ai/v1"]
ENTRY = f"""
[models."{EMBEDDER}"]
task = "text-embeddings"
context_window = 512
shape = "native"
capabilities = ["async_queue"]
price = {{ input = 0.01, cached_input = 0.01, output = 0 }}
"""


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """The catalogue with an embedding model."""
    file = tmp_path / "models.toml"
    file.write_text(DEMO_MODELS.read_text() + ENTRY)
    return settings.model_copy(update={"models_file": file})


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


@pytest.fixture
async def embedder(database: Database) -> AsyncIterator[FakeEngine]:
    async with FakeEngine(model=EMBEDDER) as engine:
        await Registry(database).ready(engine, name="embedder")
        yield engine


@pytest.fixture(params=BASES)
def api(request: pytest.FixtureRequest, client: httpx.AsyncClient, key: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=key, base_url=request.param, http_client=client, max_retries=0)


async def test_chat_and_text_completions_are_answered(api: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    chat = await api.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
    assert chat.choices[0].message.content == "echo: hello"
    text = await api.completions.create(model=MODEL, prompt="hello", extra_body={"min_tokens": 2})
    assert text.choices[0].text == "echo: hello"
    assert engine.bodies[-1]["min_tokens"] == 2
    stream = await api.completions.create(model=MODEL, prompt="hello", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == "echo: hello"


async def test_fields_that_are_the_operators_are_left_out_and_refuse_nothing(
    api: openai.AsyncOpenAI, engine: FakeEngine
) -> None:
    own = {"priority": -5, "request_id": "mine", "cache_salt": "x", "unknown": 1}
    await api.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}], extra_body=own)
    body = engine.bodies[-1]
    assert (body["priority"], body["unknown"], "request_id" in body) == (0, 1, False)
    assert body["cache_salt"] != "x"


async def test_a_response_is_answered_whole_and_streamed_and_not_kept_by_the_engine(
    api: openai.AsyncOpenAI, engine: FakeEngine
) -> None:
    whole = await api.responses.create(model=MODEL, input="hello", max_output_tokens=9)
    assert whole.output_text == "echo: hello"
    assert (engine.bodies[-1]["store"], engine.bodies[-1]["max_output_tokens"]) == (False, 9)
    events = [event async for event in await api.responses.create(model=MODEL, input="hello", stream=True)]
    assert [events[0].type, events[-1].type] == ["response.created", "response.completed"]
    assert "response.output_text.delta" in {event.type for event in events}
    assert "stream_options" not in engine.bodies[-1]


async def test_embeddings_come_in_the_order_of_their_texts(api: openai.AsyncOpenAI, embedder: FakeEngine) -> None:
    found = await api.embeddings.create(model=EMBEDDER, input=["one", "two"], encoding_format="float")
    assert [each.embedding for each in found.data] == [vector("one"), vector("two")]
    assert "max_tokens" not in embedder.bodies[-1]
    assert "stream" not in embedder.bodies[-1]


async def test_the_models_with_an_engine_are_listed_with_their_aliases_and_every_name_is_known(
    api: openai.AsyncOpenAI, database: Database
) -> None:
    async def names() -> set[str]:
        return {model.id async for model in api.models.list()}

    assert await names() == set()
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
    of_workers_ai = {"@cf/moonshotai/kimi-k2.6", "@cf/openai/gpt-oss-120b", "@cf/openai/gpt-oss-20b"}
    listed = {MODEL, "HuggingFaceTB/SmolLM2-135M-Instruct", *of_workers_ai}
    assert await eventually(names) == listed  # an engine that is away counts, too
    assert (await api.models.retrieve(EMBEDDER)).id == EMBEDDER


async def test_errors_have_openais_form_and_the_envelopes(api: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as refused:
        await api.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hello"}])
    assert (refused.value.code, refused.value.type) == ("model_not_found", "invalid_request_error")
    assert refused.value.response.json()["errors"][0]["code"] == 5007


async def test_a_route_that_the_models_task_is_not_for_is_refused(
    api: openai.AsyncOpenAI, embedder: FakeEngine
) -> None:
    with pytest.raises(
        openai.NotFoundError, match="The model bge-test does text-embeddings; this route does text-generation"
    ):
        await api.chat.completions.create(model=EMBEDDER, messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(
        openai.NotFoundError,
        match="does text-generation; this route does text-embeddings",
    ):
        await api.embeddings.create(model=MODEL, input="x")


async def test_a_key_is_needed_everywhere_and_under_an_account_it_must_be_the_accounts(
    client: httpx.AsyncClient,
) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
    foreign = await client.post("/client/v4/accounts/other/ai/v1/chat/completions", json=body)
    assert (foreign.status_code, foreign.json()["error"]["type"]) == (403, "permission_error")
    nobody = await client.post("/v1/chat/completions", json=body, headers={"authorization": "Bearer nothing"})
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (401, "invalid_api_key")
