"""Claims about the public pages, and about warnings of misspelt fields."""

import json
import re
from typing import Any

import httpx
import pytest

from app import __version__
from app.db.pool import Database
from testing.fakes.engine import FakeEngine
from tests.api.support import RUN, SUBMIT
from tests.gateway.support import Registry

MODEL = "smollm2-135m-instruct"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}
WARNING = "x-slackwater-warning"


@pytest.fixture
def nobody(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client without a key."""
    del client.headers["authorization"]
    return client


async def test_the_root_describes_the_product_to_machines_and_to_people(nobody: httpx.AsyncClient) -> None:
    told = (await nobody.get("/")).json()
    assert (told["name"], told["version"]) == ("slackwater", __version__)
    page = await nobody.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*"})
    assert page.headers["content-type"].startswith("text/html")
    for target in re.findall(r'href="([^"]+)"', page.text):
        assert (await nobody.get(target)).status_code == 200, target


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/version", "/status"])
async def test_the_routes_for_monitoring_answer_head_requests(nobody: httpx.AsyncClient, path: str) -> None:
    asked, got = await nobody.head(path), await nobody.get(path)
    assert (asked.status_code, asked.headers["content-type"]) == (200, got.headers["content-type"])


async def test_every_route_that_needs_no_key_is_linked_and_documented_as_such(nobody: httpx.AsyncClient) -> None:
    links = (await nobody.get("/")).json()["links"].values()
    document = (await nobody.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        if "{" in path or "get" not in methods:
            continue
        free = (await nobody.get(path)).status_code == 200
        assert free is ("security" not in methods["get"]), path
        assert free is (path in links), path
        assert "head" not in methods


async def test_the_version_is_the_packages(nobody: httpx.AsyncClient) -> None:
    assert (await nobody.get("/version")).json() == {"name": "slackwater", "version": __version__}
    assert (await nobody.get("/openapi.json")).json()["info"]["version"] == __version__


async def test_the_documentation_shows_every_route_and_loads_nothing(nobody: httpx.AsyncClient) -> None:
    page = (await nobody.get("/docs")).text
    document = (await nobody.get("/openapi.json")).json()
    own = [path for path in document["paths"] if "/ai/v1/" not in path]
    assert [path for path in own if f"<code>{path}</code>" not in page] == []
    assert re.findall(r"<(?:script|link|img|iframe)|@import|url\(|src=", page) == []
    assert (await nobody.get("/redoc")).status_code == 404


@pytest.fixture
async def engine(database: Database) -> object:
    async with FakeEngine() as engine:
        await Registry(database).ready(engine)
        yield engine


WAYS = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": {"model": MODEL, "prompt": "hello"},
    "/v1/responses": {"model": MODEL, "input": "hello"},
    RUN: {"prompt": "hello"},
}


@pytest.mark.parametrize("path", WAYS)
async def test_a_misspelt_field_is_warned_of_and_refused_in_strict_mode(
    client: httpx.AsyncClient, engine: FakeEngine, path: str
) -> None:
    body = WAYS[path] | {"max_token": 5}
    answer = await client.post(path, json=body)
    assert answer.status_code == 200
    assert answer.headers[WARNING] == "max_token: unknown field; did you mean max_tokens?"
    for query, headers in (("?strict=true", {}), ("", {"x-slackwater-strict": "1"})):
        refused = await client.post(path + query, json=body, headers=headers)
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["message"] == answer.headers[WARNING]
        assert "error" not in refused.json() or refused.json()["error"]["param"] == "max_token"
    assert WARNING not in (await client.post(path + "?strict=true", json=WAYS[path])).headers


async def test_a_stream_is_warned_too_and_what_is_near_to_nothing_is_the_engines(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    body = CHAT | {"stream": True, "temprature": 1, "brand_new": 2, "priority": 3, "téxt\n": 1}
    answer = await client.post("/v1/chat/completions", json=body)
    told = answer.headers[WARNING].split(" | ")
    assert told[:2] == [
        "temprature: unknown field; did you mean temperature?",
        "priority: only the operator may set it; it was left out",
    ]
    assert "brand_new" not in answer.headers[WARNING]
    refused = await client.post("/v1/chat/completions?strict=1", json=CHAT | {"brand_new": 2})
    assert refused.json()["error"]["code"] == "unknown_parameter"


async def test_a_create_of_a_batch_is_warned_of_its_misspelt_fields(client: httpx.AsyncClient) -> None:
    line = {"custom_id": "a", "body": CHAT}
    wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [line], "partial_result": True}
    answer = await client.post("/v1/batches", json=wish)
    assert answer.headers[WARNING] == "partial_result: unknown field; did you mean partial_results?"
    assert (await client.post("/v1/batches?strict=true", json=wish)).status_code == 400


async def test_token_ids_are_asked_of_the_engine_synchronous_and_queued_alike(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    asked = {"return_token_ids": True}
    assert (await client.post("/v1/chat/completions", json=CHAT | asked)).status_code == 200
    assert engine.bodies[-1]["return_token_ids"] is True
    assert (await client.post(RUN, json={"prompt": "hello"} | asked)).status_code == 200
    submit = await client.post(f"{RUN}?queueRequest=true", json={"requests": [{"prompt": "hello"} | asked]})
    assert submit.status_code == 200


@pytest.mark.parametrize(
    ("query", "near"), [("completion_windw=6h", "completion_window"), ("tagz=nightly", "tag"), ("x=1&y=2", None)]
)
async def test_a_submit_is_warned_of_a_misspelt_query_parameter_and_in_strict_mode_refused(
    client: httpx.AsyncClient, query: str, near: str | None
) -> None:
    body, name = {"requests": [{"prompt": "hi"}]}, query.partition("=")[0]
    answer = await client.post(f"{SUBMIT}&{query}", json=body)
    said = f"{name}: unknown query parameter; did you mean {near}?" if near else None
    assert (answer.status_code, answer.headers.get(WARNING)) == (200, said)
    refused = await client.post(f"{SUBMIT}&{query}&strict=true", json=body)
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["message"].startswith(f"{name}: unknown query parameter")
    known = await client.post(f"{SUBMIT}&tags=a&tag=b&completion_window=6h&strict=true", json=body)
    assert (known.status_code, known.headers.get(WARNING)) == (200, None)


@pytest.mark.parametrize("ndjson", [False, True])
async def test_a_submit_is_warned_of_misspelt_fields_of_its_items_and_in_strict_mode_refused(
    client: httpx.AsyncClient, *, ndjson: bool
) -> None:
    items = [{"prompt": "a", "external_reference": "x"}, {"prompt": "b", "temprature": 1, "brand_new": 2}]
    sent: dict[str, Any] = {"json": {"requests": items}}
    if ndjson:
        lines = "\n".join(json.dumps(item) for item in [*items, items[1]])
        sent = {"content": lines, "headers": {"content-type": "application/x-ndjson"}}
    answer = await client.post(f"{SUBMIT}&tagz=nightly", **sent)
    place = "line 2 (requests[1])" if ndjson else "requests[1]"
    said = f"{place}.temprature: unknown field; did you mean temperature?"
    assert answer.status_code == 200
    assert answer.headers[WARNING] == f"tagz: unknown query parameter; did you mean tag? | {said}"
    assert [each["message"] for each in answer.json()["messages"]] == [said]
    refused = await client.post(f"{SUBMIT}&strict=true", **sent)
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["message"] == said


@pytest.mark.parametrize("value", ["banana", "", "t"])
@pytest.mark.parametrize("body", [{"requests": [{"prompt": "hi"}]}, {"prompt": "hi"}])
async def test_queue_request_is_yes_or_no(client: httpx.AsyncClient, value: str, body: dict[str, object]) -> None:
    answer = await client.post(f"{RUN}?queueRequest={value}", json=body)
    assert answer.status_code == 400
    words = f"queueRequest: must be one of true, 1, yes, false, 0, no, got {value!r}"
    assert answer.json()["errors"][0]["message"] == words


async def test_a_tag_may_be_called_tag_or_tags_where_it_is_given_and_where_it_is_looked_for(
    client: httpx.AsyncClient,
) -> None:
    for query in ("tag=a&tag=b", "tags=a,b", "tags=a&tag=b"):
        assert (await client.post(f"{SUBMIT}&{query}", json={"requests": [{"prompt": "hi"}]})).status_code == 200
    batches = RUN.partition("/run/")[0] + "/batches"
    for query, count in (("tag=a", 3), ("tags=a,b", 3), ("tags=b", 3), ("tags=a,c", 0)):
        assert len((await client.get(f"{batches}?{query}")).json()["result"]) == count
