"""Claims about all lists: whoever deletes what a page shows before reading the next one, still sees every object once."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.settings import Settings
from app.webhooks import endpoint_removal
from testing.fakes.engine import FakeEngine
from tests.api.support import NEW_SUBSCRIPTION, SUBSCRIPTIONS, line, uploaded
from tests.api.test_conversations import engine, new, say
from tests.api.test_openai_files import wish
from tests.api.test_pipelines import two
from tests.pipelines.test_served import Played

__all__ = ["engine"]

OBJECTS = 7
GROWN = "/client/v4/accounts/acme/ai"
HOOK = {"name": "n", "url": "http://127.0.0.1:9/", "event_types": ["batch.completed"]}


async def ended(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> str:
    """Make a batch or a pipeline and cancel it; its id."""
    made = (await client.post(path, json=body)).json()["id"]
    assert (await client.post(f"{path}/{made}/cancel")).status_code == 200
    return str(made)


async def files(client: httpx.AsyncClient) -> str:
    for n in range(OBJECTS):
        await uploaded(client, line(n))
    return "/v1/files?purpose=batch"


async def outputs(client: httpx.AsyncClient) -> str:
    file = await uploaded(client, line(0))
    for _ in range(OBJECTS):
        await ended(client, "/v1/batches", wish(file))
    return "/v1/files?purpose=batch_output"


async def batches(client: httpx.AsyncClient) -> str:
    await outputs(client)
    return "/v1/batches?"


async def pipelines(client: httpx.AsyncClient) -> str:
    for _ in range(OBJECTS):
        await ended(client, "/v1/pipelines", two())
    return "/v1/pipelines?"


async def webhooks(client: httpx.AsyncClient) -> str:
    for _ in range(OBJECTS):
        assert (await client.post("/v1/webhook_endpoints", json=HOOK)).status_code == 200
    return "/v1/webhook_endpoints?"


async def items(client: httpx.AsyncClient) -> str:
    talk = await new(client, items=[{"role": "user", "content": str(n)} for n in range(4)])
    await say(client, "five", conversation=talk)
    more = {"items": [{"type": "message", "id": "msg_of_the_caller", "role": "user", "content": "seven"}]}
    assert (await client.post(f"/v1/conversations/{talk}/items", json=more)).status_code == 200
    return f"/v1/conversations/{talk}/items?"


async def input_items(client: httpx.AsyncClient) -> str:
    given = [{"role": "user", "content": str(n)} for n in range(OBJECTS)]
    made = await say(client, given, conversation=await new(client))
    return f"/v1/responses/{made['id']}/input_items?"


async def own_batches(client: httpx.AsyncClient) -> str:
    await outputs(client)
    return f"{GROWN}/batches?"


async def conversations(client: httpx.AsyncClient) -> str:
    for _ in range(OBJECTS):
        await new(client)
    return f"{GROWN}/conversations?"


async def subscriptions(client: httpx.AsyncClient) -> str:
    for _ in range(OBJECTS):
        assert (await client.post(SUBSCRIPTIONS, json=NEW_SUBSCRIPTION)).status_code == 200
    return f"{SUBSCRIPTIONS}?"


async def delete(client: httpx.AsyncClient, database: Database, path: str, each: dict[str, Any]) -> None:
    """Delete an object of the list at this path, with its row where that goes at all."""
    folder = path.partition("?")[0]
    if "input_items" in folder:  # which are items of a conversation
        response = (await client.get(folder.removesuffix("/input_items"))).json()
        folder = f"/v1/conversations/{response['conversation']['id']}/items"
    if folder.endswith("/conversations"):
        folder = "/v1/conversations"
    gone = await client.delete(f"{folder}/{each.get('id') or each['request_id']}")
    assert gone.status_code == 200, gone.text
    async with database.durable() as conn:
        await endpoint_removal.step(conn)


STAYS = "nobody deletes its rows; they go with what they are of, or when they are old"
NOT_PAGED = "no list of rows"
# The other lists, and why nothing of a page can be missed there. A path that may also begin otherwise stands here by its end.
OTHERS = {
    "/v1/pipelines/{pipeline_id}/results": STAYS,
    "/v1/pipelines/{pipeline_id}/waiting": "an answer takes an item out; a place is the item's number in its stage",
    "/operator/batches": "as `own_batches`",
    "/operator/pipelines": "as `pipelines`",
    "/operator/conversations": "as `conversations`",
    "/conversations/{conversation_id}/turns": "a place is the number of a turn",
    "/batches/{request_id}/results": STAYS,
    "/batches/{request_id}/items": STAYS,
    "/incidents": STAYS,
    "/engines/{name}/decisions": STAYS,
    "/policy/versions": STAYS,
    "/audit": STAYS,
    "/ai/keys": "a key is revoked, and its row stays",
    "/{subscription_id}/deliveries": "they go with their subscription",
    "/events": "what is acknowledged leaves it; a place is the number of an event",
    "/models/search": "made of the catalogue",
    "/usage/explain": NOT_PAGED,
}
PAGED = (
    "/files", "/v1/batches", "/input_items", "/conversations/{conversation_id}/items", "/v1/pipelines", "/webhook_endpoints",
    "/ai/batches", "/ai/conversations", "/subscriptions",
)  # fmt: skip


async def test_every_list_is_paged_here_while_it_is_deleted_or_says_why_not(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()["paths"]
    lists = {
        path
        for path, operations in document.items()
        if {"after", "before", "page"} & {each["name"] for each in operations.get("get", {}).get("parameters", ())}
    }
    assert {path for path in lists if not path.endswith((*PAGED, *OTHERS))} == set()
    assert [end for end in (*PAGED, *OTHERS) if not any(path.endswith(end) for path in lists)] == []


DIRECTIONS = ((subscriptions, "&direction=desc"), (subscriptions, ""))
BOTH = (files, outputs, items, input_items)
ONE = (batches, pipelines, webhooks, own_batches, conversations)


@pytest.mark.parametrize(
    ("make", "order"),
    [
        *((make, f"&order={order}") for make in BOTH for order in ("asc", "desc")),
        *((make, "") for make in ONE),
        *DIRECTIONS,
    ],
)
async def test_what_is_deleted_while_a_list_is_paged_hides_nothing(
    client: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    engine: FakeEngine,
    make: Callable[[httpx.AsyncClient], Awaitable[str]],
    order: str,
) -> None:
    path = await make(client) + order
    if make is pipelines:
        await Played(database, settings).play()  # until they are cancelled
    key = "result" if path.startswith("/client") else "data"
    size = "per_page" if make is subscriptions else "limit"
    whole = (await client.get(path)).json()[key]
    assert len(whole) == OBJECTS
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        page = (await client.get(f"{path}&{size}=2{after and f'&after={after}'}")).json()
        assert 0 < len(page[key]) <= 2, page
        for each in page[key]:
            await delete(client, database, path, each)
        found += page[key]
        after = page["result_info"]["cursor"] if key == "result" else page["last_id"] if page["has_more"] else None
    assert [each.get("id") or each["request_id"] for each in found] == [
        each.get("id") or each["request_id"] for each in whole
    ]
    if make in (items, input_items):
        assert [each["content"] for each in found] == [each["content"] for each in whole]


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_a_file_that_a_retry_has_replaced_stays_a_place_in_the_list(
    client: httpx.AsyncClient, order: str
) -> None:
    path = f"{await outputs(client)}&order={order}"
    whole = [each["id"] for each in (await client.get(path)).json()["data"]]
    page, found = (await client.get(f"{path}&limit=2")).json(), list[str]()
    while page["data"]:
        found += [each["id"] for each in page["data"]]
        for each in page["data"]:
            batch = each["filename"].partition("_")[0]
            assert (await client.post(f"{GROWN}/batches/{batch}/retry")).status_code == 200
        page = (await client.get(f"{path}&limit=2&after={found[-1]}")).json()
    assert found == whole


@pytest.mark.parametrize("path", ["files", "batches", "pipelines", "webhook_endpoints"])
@pytest.mark.parametrize("after", ["nonsense", "file-0", "we_0", 32 * "0", "batch_" + 32 * "0", "pipe_" + 32 * "0"])
async def test_a_place_that_a_list_does_not_know_is_named(client: httpx.AsyncClient, path: str, after: str) -> None:
    answer = await client.get(f"/v1/{path}?after={after}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "after")


async def test_the_ids_of_a_turns_other_items_stay_when_one_is_deleted(
    client: httpx.AsyncClient, engine: FakeEngine
) -> None:
    path = (await items(client)).removesuffix("?")
    whole = (await client.get(f"{path}?order=asc")).json()["data"]
    await client.delete(f"{path}/{whole[1]['id']}")
    assert (await client.get(f"{path}/{whole[1]['id']}")).status_code == 404
    assert (await client.get(f"{path}/{whole[2]['id']}")).json() == whole[2]
    await client.delete(f"{path}/{whole[2]['id']}")
    assert (await client.get(f"{path}?order=asc")).json()["data"] == whole[:1] + whole[3:]
    await say(client, "more", conversation=path.split("/")[3])
    assert all("id" not in item for item in engine.bodies[-1]["input"])
