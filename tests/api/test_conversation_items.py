"""Claims about what changes and lists a conversation beside its turns, and about how much it may hold."""

import asyncio
from typing import Any

import httpx
import pytest

from app.db.pool import Database
from app.sessions import reading, service
from testing.fakes.engine import FakeEngine
from tests.api.support import MODEL
from tests.api.test_conversations import engine, items, new, say

__all__ = ["engine"]


async def test_every_change_of_another_version_is_refused(client: httpx.AsyncClient, engine: FakeEngine) -> None:
    talk = await new(client, metadata={"team": "a"})
    await say(client, "one", conversation=talk)
    path = f"/v1/conversations/{talk}"
    item = (await client.get(f"{path}/items")).json()["data"][0]["id"]
    changes: list[tuple[str, str, Any]] = [
        ("POST", path, {"metadata": {"team": "b"}}),
        ("POST", f"{path}/items", {"items": [{"role": "user", "content": "two"}]}),
        ("DELETE", f"{path}/items/{item}", None),
        ("DELETE", path, None),
    ]
    for method, url, body in changes:
        moved = await client.request(method, url, json=body, headers={"if-match": '"0"'})
        assert (moved.status_code, "at version 1" in moved.text) == (412, True), (method, url)
    assert (await client.get(path)).json()["metadata"] == {"team": "a"}
    assert await items(client, talk) == ["one", "echo: one"]
    for version, (method, url, body) in zip((1, 1, 2, 2), changes, strict=True):
        done = await client.request(method, url, json=body, headers={"if-match": f'"{version}"'})
        assert done.status_code == 200, done.text


async def test_a_conversation_that_is_full_takes_nothing_more(
    client: httpx.AsyncClient, engine: FakeEngine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await new(client, items=[{"role": "user", "content": "zero"}])
    turn = {"model": MODEL, "input": "two", "conversation": talk}
    added = {"items": [{"role": "user", "content": 1000 * "x"}]}
    adding = (
        ("/v1/responses", turn),
        ("/v1/responses", turn | {"background": True}),
        (f"/v1/conversations/{talk}/items", added),
    )
    for name, most in (("MOST_TURNS", 1), ("MOST_HELD", 50)):
        with monkeypatch.context() as patch:
            patch.setattr(service, name, most)
            for path, body in adding:
                full = await client.post(path, json=body)
                assert (full.status_code, full.json()["error"]["param"]) == (400, "conversation"), full.text
    async with database.durable() as conn:
        assert await (await conn.execute("select from turn where n > 1 union all select from batch")).fetchall() == []
    monkeypatch.setattr(service, "MOST_HELD", 2000)
    for status in (200, 400):
        assert (await client.post(f"/v1/conversations/{talk}/items", json=added)).status_code == status


async def test_a_conversation_whose_first_items_are_refused_is_not_created(
    client: httpx.AsyncClient, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_BYTES", 100)
    refused = await client.post("/v1/conversations", json={"items": [{"role": "user", "content": 100 * "x"}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "items")
    assert "several requests" in refused.text
    async with database.durable() as conn:
        assert await (await conn.execute("select from session")).fetchall() == []


async def test_pages_of_items_are_those_of_the_whole_conversation(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAGE_TURNS", 2)
    talk = await new(client)
    for n in range(5):
        added = {"items": [{"role": "user", "content": f"{n}.{place}"} for place in range(1 + n % 3)]}
        assert (await client.post(f"/v1/conversations/{talk}/items", json=added)).status_code == 200
    texts = ["0.0", "1.0", "1.1", "2.0", "2.1", "2.2", "3.0", "4.0", "4.1"]
    assert await items(client, talk) == texts
    for order, expected in (("asc", texts), ("desc", texts[::-1])):
        for limit in (1, 2, 4, 9):
            found, after, more = [], "", True
            while more and len(found) <= len(texts):
                path = f"/v1/conversations/{talk}/items?order={order}&limit={limit}{after}"
                page = (await client.get(path)).json()
                found += [item["content"][0]["text"] for item in page["data"]]
                after, more = f"&after={page['last_id']}", page["has_more"]
            assert found == expected
    other = await new(client)
    last = f"after={page['last_id']}"
    assert (await client.get(f"/v1/conversations/{other}/items?{last}")).status_code == 400
    assert (await client.get(f"/v1/conversations/{other}/items")).json()["data"] == []
    assert (await client.get(f"/v1/conversations/conv_{32 * '0'}/items")).status_code == 404


async def test_of_two_items_of_a_turn_that_are_deleted_at_once_none_comes_back(
    client: httpx.AsyncClient, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await new(client)
    await say(client, "one", conversation=talk)
    path = f"/v1/conversations/{talk}/items"
    ids = [each["id"] for each in (await client.get(path)).json()["data"]]
    both_have_read, item = asyncio.Barrier(2), reading.item

    async def slow(*given: Any) -> Any:
        found = await item(*given)
        await both_have_read.wait()
        return found

    monkeypatch.setattr(reading, "item", slow)
    done = await asyncio.gather(*(client.delete(f"{path}/{each}") for each in ids))
    assert sorted(each.status_code for each in done) == [200, 400]
    left = [each["id"] for each in (await client.get(path)).json()["data"]]
    assert len(left) == 1
    assert left[0] == ids[[each.status_code for each in done].index(400)]
