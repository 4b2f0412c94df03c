"""Claims about all lists: whoever deletes what a page shows before reading the next one, still sees every object once."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import key_list
from app.tenants import service as tenants
from app.webhooks import endpoint_removal
from testing.fakes.engine import FakeEngine
from tests.api.support import NEW_SUBSCRIPTION, SUBSCRIPTIONS, line, submit, uploaded
from tests.api.test_conversations import engine, new, say
from tests.api.test_events import EVENTS, QUEUE
from tests.api.test_openai_files import wish
from tests.api.test_pipelines import two
from tests.pipelines.outside import OUTSIDE
from tests.pipelines.test_served import Played

__all__ = ["engine"]

OBJECTS = 7
GROWN = "/client/v4/accounts/acme/ai"
HOOK = {"name": "n", "url": "http://127.0.0.1:9/", "event_types": ["batch.completed"]}
TOKEN = "of-the-operator"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"operator_token": SecretStr(TOKEN)})


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


async def waiting(client: httpx.AsyncClient) -> str:
    lines = [{"custom_id": str(n), "code": str(n)} for n in range(OBJECTS)]
    given = two(stages=[OUTSIDE], input={"items": lines})
    made = (await client.post("/v1/pipelines", json=given)).json()["id"]
    return f"/v1/pipelines/{made}/waiting?"


async def events(client: httpx.AsyncClient) -> str:
    await client.post(SUBSCRIPTIONS, json=QUEUE)
    for _ in range(OBJECTS):
        await submit(client)
    return f"{EVENTS}?"


async def deliveries(client: httpx.AsyncClient) -> str:
    await events(client)
    [subscription] = (await client.get(SUBSCRIPTIONS)).json()["result"]
    return f"{SUBSCRIPTIONS}/{subscription['id']}/deliveries?state=pending"


async def keys(client: httpx.AsyncClient) -> str:
    """Beside the caller's own, they are made in the database."""
    return f"{GROWN}/keys?view=live"


async def all_batches(client: httpx.AsyncClient) -> str:
    await outputs(client)
    return "/operator/batches?"


async def all_pipelines(client: httpx.AsyncClient) -> str:
    await pipelines(client)
    return "/operator/pipelines?"


async def all_conversations(client: httpx.AsyncClient) -> str:
    await conversations(client)
    return "/operator/conversations?"


OPERATOR = {"authorization": f"Bearer {TOKEN}"}


def name(each: dict[str, Any]) -> str:
    """The id of an object of any list."""
    return str(each.get("id") or each["request_id"])


async def more_keys(settings: Settings, database: Database) -> None:
    for n in range(1, OBJECTS):
        async with database.durable() as conn:
            await tenants.create_key(conn, secret_key(settings), "acme", str(n))


async def take_out(client: httpx.AsyncClient, path: str, each: dict[str, Any]) -> httpx.Response:
    """Do what takes an object out of the list at this path."""
    folder = path.partition("?")[0]
    if folder.endswith("/waiting"):
        return await client.post(f"{folder.removesuffix('waiting')}items/{name(each)}/answer", json={"answer": 1})
    if folder.endswith(("/events", "/deliveries")):
        return await client.post(f"{EVENTS}/ack", json={"ids": [name(each)]})
    if folder.endswith("/input_items"):  # which are items of a conversation
        response = (await client.get(folder.removesuffix("/input_items"))).json()
        folder = f"/v1/conversations/{response['conversation']['id']}/items"
    for kind in ("conversations", "batches", "pipelines"):
        if folder in (f"/operator/{kind}", f"{GROWN}/{kind}"):
            folder = f"/v1/{kind}"
    return await client.delete(f"{folder}/{name(each)}")


async def delete(client: httpx.AsyncClient, database: Database, path: str, each: dict[str, Any]) -> None:
    """Take an object out of the list at this path, with its row where that goes at all."""
    async with database.durable() as conn:
        if "/keys" in path:
            assert await tenants.revoke_key(conn, name(each))
            return
    gone = await take_out(client, path, each)
    assert gone.status_code == 200, gone.text
    async with database.durable() as conn:
        await endpoint_removal.step(conn)


STAYS = "nobody deletes its rows: they go with what they are of, or when they are old"
# The other lists that have a place, by the reason why nothing of a page can be missed there.
OTHERS = {
    STAYS: ("/conversations/{conversation_id}/turns", "/incidents", "/engines/{name}/decisions", "/policy/versions", "/audit"),
    "a row for each item, and a place is the item's number; a retry gives all that failed another run at once": (
        "/batches/{request_id}/items", "/batches/{request_id}/results", "/v1/pipelines/{pipeline_id}/results",
    ),
    "made of the catalogue, which changes with the installation only": ("/models/search",),
    "no list of rows: `before` names a period": ("/usage/explain",),
}  # fmt: skip
ELSEWHERE = tuple(end for ends in OTHERS.values() for end in ends)
PAGED = (
    "/v1/files", "/v1/batches", "/v1/pipelines", "/v1/webhook_endpoints", "/input_items",
    "/conversations/{conversation_id}/items", "/waiting", "/ai/batches", "/ai/conversations", "/ai/keys",
    "/subscriptions", "/deliveries", "/events", "/operator/batches", "/operator/pipelines", "/operator/conversations",
)  # fmt: skip


async def test_every_list_is_paged_here_while_it_is_deleted_or_says_why_not(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()["paths"]
    lists = {
        path
        for path, operations in document.items()
        if {"after", "before", "page"} & {each["name"] for each in operations.get("get", {}).get("parameters", ())}
    }
    assert {path for path in lists if not path.endswith((*PAGED, *ELSEWHERE))} == set()
    assert [end for end in (*PAGED, *ELSEWHERE) if not any(path.endswith(end) for path in lists)] == []


BOTH = (files, outputs, items, input_items)
ONE = (
    batches, pipelines, webhooks, waiting, own_batches, conversations, keys, deliveries, events, subscriptions,
    all_batches, all_pipelines, all_conversations,
)  # fmt: skip
PLAYED = (pipelines, all_pipelines, waiting)  # which the steward has to move first


def following(page: dict[str, Any]) -> str | None:
    """The place of the next page; None: this was the last one."""
    if "data" in page:
        return page["last_id"] if page["has_more"] else None
    return next(page["result_info"][place] for place in ("cursor", "before", "after") if place in page["result_info"])


@pytest.mark.parametrize(
    ("make", "order"),
    [
        *((make, f"&order={order}") for make in BOTH for order in ("asc", "desc")),
        *((make, "") for make in ONE),
        (subscriptions, "&direction=desc"),
    ],
)
async def test_what_is_deleted_while_a_list_is_paged_hides_nothing(
    client: httpx.AsyncClient,
    database: Database,
    settings: Settings,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[httpx.AsyncClient], Awaitable[str]],
    order: str,
) -> None:
    path = await make(client) + order
    if make is keys:
        await more_keys(settings, database)
    if make in PLAYED:
        await Played(database, settings).play()
    headers = OPERATOR if path.startswith("/operator") else {}
    key = "result" if path.startswith(("/client", "/operator")) else "data"
    size = {subscriptions: "&per_page=2", keys: ""}.get(make, "&limit=2")
    place = "before" if make is deliveries else "after"
    whole = (await client.get(path, headers=headers)).json()[key]
    assert len(whole) == OBJECTS
    monkeypatch.setattr(key_list, "PAGE_KEYS", 2)  # the only list whose pages have one length
    found: list[dict[str, Any]] = []
    at: str | int | None = ""
    while at is not None:
        asked = f"{path}{size}{at and f'&{place}={at}'}"
        page = (await client.get(asked, headers=headers)).json()
        assert len(page[key]) <= 2, page
        for each in page[key]:
            await delete(client, database, path, each)
        found += page[key]
        at = following(page)
    assert [*map(name, found)] == [*map(name, whole)]
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
