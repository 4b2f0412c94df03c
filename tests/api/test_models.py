"""The catalogue over HTTP: search that ends, filters, OpenRouter's form, schemas, tasks, authors."""

from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import jsonschema
import pytest

from app.settings import Settings
from tests.api.embedding import EMBEDDER, with_embedder

AI = "/client/v4/accounts/acme/ai"
OWN = "smollm2-135m-instruct"
ALIAS = "HuggingFaceTB/SmolLM2-135M-Instruct"
KIMI = "@cf/moonshotai/kimi-k2.6"
GPT = {"@cf/openai/gpt-oss-120b", "@cf/openai/gpt-oss-20b"}
ALL = {OWN, ALIAS, KIMI, EMBEDDER, "embedder"} | GPT


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    return with_embedder(settings, tmp_path)


async def found(client: httpx.AsyncClient, **query: Any) -> dict[str, Any]:
    """The models that a search finds, by name."""
    answer = await client.get(f"{AI}/models/search", params=query)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["success"], body["errors"], body["messages"]) == (True, [], [])
    return {model["name"]: model for model in body["result"]}


async def test_every_name_is_found_with_its_task_and_properties(client: httpx.AsyncClient) -> None:
    models = await found(client)
    assert set(models) == ALL
    kimi = models[KIMI]
    properties = {each["property_id"]: each["value"] for each in kimi["properties"]}
    assert (kimi["task"]["name"], kimi["source"], kimi["tags"]) == ("Text Generation", 1, [])
    assert properties["async_queue"] == "true"
    assert properties["vision"] == properties["lora"] == properties["reasoning"] == "false"
    assert properties["context_window"] == "8192"
    assert [(each["unit"], each["price"], each["currency"]) for each in properties["price"]] == [
        ("per M input tokens", 0.6, "USD"),
        ("per M cached input tokens", 0.1, "USD"),
        ("per M output tokens", 3.0, "USD"),
    ]


async def test_a_model_without_a_price_has_none_and_an_embedding_model_shows_its_longest_input(
    client: httpx.AsyncClient,
) -> None:
    properties = {each["property_id"]: each["value"] for each in (await found(client))[EMBEDDER]["properties"]}
    assert properties["max_input_tokens"] == "64"
    assert "price" not in properties


async def test_ids_are_uuids_that_stay(client: httpx.AsyncClient) -> None:
    first, second = await found(client), await found(client, search="kimi")
    assert len({UUID(model["id"]) for model in first.values()}) == len(ALL)
    assert first[KIMI]["id"] == second[KIMI]["id"] == "8e519d64-2f15-5742-9081-fb5b985d301e"


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"search": "KIMI"}, {KIMI}),
        ({"search": "135M"}, {OWN, ALIAS}),
        ({"search": "vectors"}, {EMBEDDER, "embedder"}),
        ({"search": "nothing like it"}, set()),
        ({"task": "Text Embeddings"}, {EMBEDDER, "embedder"}),
        ({"task": "text-generation"}, ALL - {EMBEDDER, "embedder"}),
        ({"task": "Translation"}, set()),
        ({"author": "moonshotai"}, {KIMI}),
        ({"author": "openai"}, GPT),
        ({"author": "huggingfacetb"}, {ALIAS}),
        ({"source": 1}, ALL),
        ({"source": 2}, set()),
        ({"hide_experimental": "true", "include_deprecated": "true", "unknown": "x"}, ALL),
    ],
)
async def test_a_search_finds_by_name_description_task_author_and_source(
    client: httpx.AsyncClient, query: dict[str, Any], names: set[str]
) -> None:
    assert set(await found(client, **query)) == names


async def test_a_task_is_found_by_its_id_too(client: httpx.AsyncClient) -> None:
    tasks = (await client.get(f"{AI}/tasks/search")).json()["result"]
    assert [task["name"] for task in tasks] == ["Text Generation", "Text Embeddings"]
    assert set(await found(client, task=tasks[1]["id"])) == {EMBEDDER, "embedder"}


async def test_pages_hold_everything_once_and_the_one_after_the_last_is_empty(client: httpx.AsyncClient) -> None:
    assert await found(client, page=2) == {}
    names: list[str] = []
    for page in range(1, 6):
        answer = await client.get(f"{AI}/models/search", params={"page": page, "per_page": 2})
        names += [model["name"] for model in answer.json()["result"]]
        info = answer.json()["result_info"]
        assert info == {
            "count": [2, 2, 2, 1, 0][page - 1],
            "page": page,
            "per_page": 2,
            "total_count": 7,
            "total_pages": 4,
        }
    assert sorted(names) == sorted(ALL)


@pytest.mark.parametrize("query", [{"page": 0}, {"per_page": 0}, {"page": "x"}, {"format": "xml"}])
async def test_a_bad_parameter_is_named(client: httpx.AsyncClient, query: dict[str, Any]) -> None:
    answer = await client.get(f"{AI}/models/search", params=query)
    [error] = answer.json()["errors"]
    assert (answer.status_code, error["code"]) == (400, 5006)
    assert next(iter(query)) in error["message"]


async def test_openrouters_form_has_prices_for_one_token_as_strings(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{AI}/models/search", params={"format": "openrouter", "search": "kimi"})
    [kimi] = answer.json()["data"]
    assert (kimi["id"], kimi["context_length"]) == (KIMI, 8192)
    assert {kind: float(price) for kind, price in kimi["pricing"].items()} == {
        "prompt": 0.6e-6,
        "completion": 3e-6,
        "input_cache_read": 0.1e-6,
    }


async def test_authors_are_those_of_the_names(client: httpx.AsyncClient) -> None:
    authors = (await client.get(f"{AI}/authors/search")).json()["result"]
    assert [author["name"] for author in authors] == ["HuggingFaceTB", "moonshotai", "openai", "slackwater", "test"]


@pytest.mark.parametrize("name", sorted(ALL))
async def test_every_model_has_schemas_of_what_it_takes_and_gives(client: httpx.AsyncClient, name: str) -> None:
    schemas = (await client.get(f"{AI}/models/schema", params={"model": name})).json()["result"]
    assert set(schemas) == {"input", "output"}
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_the_schema_of_an_unknown_or_unnamed_model_is_refused(client: httpx.AsyncClient) -> None:
    unknown = await client.get(f"{AI}/models/schema", params={"model": "nobody"})
    assert (unknown.status_code, unknown.json()["errors"][0]["code"]) == (400, 5007)
    unnamed = await client.get(f"{AI}/models/schema")
    assert (unnamed.status_code, unnamed.json()["errors"][0]["code"]) == (400, 5006)


@pytest.mark.parametrize("path", ["models/search", "models/schema?model=x", "tasks/search", "authors/search"])
async def test_the_catalogue_is_for_the_accounts_own_keys(client: httpx.AsyncClient, path: str) -> None:
    foreign = await client.get(f"/client/v4/accounts/other/ai/{path}")
    assert (foreign.status_code, foreign.json()["errors"][0]["code"]) == (403, 10000)
