"""Claims about the deletion of a batch's contents."""

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from app.batches import shredding
from app.queue import shredding as queue_shredding
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant
from tests.api.support import BATCHES, MODEL, SUBMIT, run_all
from tests.gpu.world import World
from tests.sealing.support import CLEAR, PLANTED, on_disk


def text_of(settings: Settings) -> str:
    return PLANTED if settings.encrypt == "on" else CLEAR


@pytest.fixture(params=["on", "off"])
def settings(settings: Settings, request: pytest.FixtureRequest) -> Settings:
    """Sealed, and in the clear; larger bodies go to the store."""
    return settings.model_copy(update={"encrypt": request.param, "object_kb": 2})


async def submit(client: httpx.AsyncClient, settings: Settings) -> str:
    prompts = [*[f"{text_of(settings)} {n}" for n in range(3)], text_of(settings) * 100]
    items = [{"prompt": prompt, "max_tokens": 5} for prompt in prompts]
    answer = await client.post(SUBMIT, json={"requests": items})
    return str(answer.json()["result"]["request_id"])


async def contents(world: World) -> tuple[Any, ...]:
    [counts] = await world.fetch(
        "select (select count(*) from item_payload), (select count(*) from item_result), (select count(*) from batch_key),"
        " (select count(*) from shredding)"
    )
    return *counts, len([key async for key, _ in Store.of(world.settings).list("payload")])


async def test_a_deleted_batch_has_no_contents_and_all_its_evidence(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))
    before = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    answer = await client.delete(f"{BATCHES}/{request_id}")
    assert answer.status_code == 200, answer.text
    after = answer.json()["result"]
    assert after.pop("deleted_at")
    assert after == before
    assert await contents(world) == (0, 0, 0, 0, 0)
    read = await client.get(f"{BATCHES}/{request_id}/results")
    assert read.status_code == 410
    assert re.search(r"deleted on \w{3} \d+ \w{3} \d\d:\d\d UTC", read.text)
    assert (await client.post(SUBMIT, json={"request_id": request_id})).status_code == 410
    retry = await client.post(f"{BATCHES}/{request_id}/retry")
    assert retry.status_code == 409
    again = await client.delete(f"{BATCHES}/{request_id}")
    assert again.json()["result"]["deleted_at"] == answer.json()["result"]["deleted_at"]
    kinds = [row[0] for row in await world.fetch("select kind from event order by event_id")]
    assert kinds.count("batch.shredded") == 1


async def test_a_running_batch_is_not_deleted(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client, world.settings)
    refused = await client.delete(f"{BATCHES}/{request_id}")
    assert (refused.status_code, "cancel it or wait" in refused.text) == (409, True)
    openai = await client.delete(f"/v1/batches/batch_{request_id.replace('-', '')}")
    assert openai.status_code == 409
    assert (await contents(world))[0] == 4
    assert (await client.delete(f"{BATCHES}/{'0' * 8}-0000-4000-8000-{'0' * 12}")).status_code == 404


async def test_openais_route_deletes_the_batch_and_its_output_files(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))
    batch_id = f"batch_{request_id.replace('-', '')}"
    output = (await client.get(f"/v1/batches/{batch_id}")).json()["output_file_id"]
    assert (await client.get(f"/v1/files/{output}/content")).status_code == 200
    assert (await client.delete(f"/v1/batches/{batch_id}")).json() == {
        "id": batch_id,
        "object": "batch",
        "deleted": True,
    }
    assert (await client.get(f"/v1/files/{output}/content")).status_code == 404
    assert (await client.get(f"/v1/batches/{batch_id}")).json()["request_counts"]["completed"] == 4
    assert (await contents(world))[:2] == (0, 0)


async def test_a_process_that_dies_after_the_commit_leaves_nothing_readable_and_the_steward_goes_on(
    client: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))

    async def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(queue_shredding, "clean", dies)
    [(found, tenant)] = await world.fetch("select request_id, tenant_id from batch")
    with pytest.raises(KeyboardInterrupt):
        await shredding.shred(world.database, world.settings, Tenant(tenant, "acme"), found)
    monkeypatch.undo()
    assert (await client.get(f"{BATCHES}/{request_id}/results")).status_code == 410
    assert (await contents(world))[2:4] == (0, 1)
    assert await queue_shredding.sweep(world.database, Store.of(world.settings)) == 1
    assert await contents(world) == (0, 0, 0, 0, 0)


async def test_a_process_that_dies_before_the_commit_has_deleted_nothing(
    client: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))

    async def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shredding.emitter, "emit", dies)
    [(found, tenant)] = await world.fetch("select request_id, tenant_id from batch")
    with pytest.raises(KeyboardInterrupt):
        await shredding.shred(world.database, world.settings, Tenant(tenant, "acme"), found)
    monkeypatch.undo()
    read = await client.get(f"{BATCHES}/{request_id}/results")
    assert len([json.loads(line) for line in read.text.splitlines()]) == 4


async def test_after_deletion_and_vacuum_the_text_is_on_no_page_of_the_tables(
    client: httpx.AsyncClient, world: World, settings: Settings
) -> None:
    """The write-ahead log may hold rows that were stored in the clear until it is recycled; sealed ones it never holds."""
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))
    async with world.database.durable() as conn:
        await conn.execute("analyze")  # as autovacuum does: samples of values outlive their rows
        await client.delete(f"{BATCHES}/{request_id}")
        await conn.execute("vacuum (truncate)")
        [(oid,)] = await (
            await conn.execute("select oid from pg_database where datname = current_database()")
        ).fetchall()
    found = await on_disk(world.database, settings.data_dir / "objects", text=text_of(settings))
    assert [path for path in found if f"/base/{oid}/" in path or "objects" in path] == []
    if settings.encrypt == "on":
        assert found == []


async def files_of(client: httpx.AsyncClient, request_id: str) -> tuple[str | None, str | None]:
    """The output and the error file of a batch, by OpenAI's route."""
    shown = (await client.get(f"/v1/batches/batch_{request_id.replace('-', '')}")).json()
    return shown["output_file_id"], shown["error_file_id"]


async def test_with_the_last_of_its_output_files_a_batch_loses_its_contents_and_keeps_its_evidence(
    client: httpx.AsyncClient, world: World
) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, fail={1}, keyring=Keyring.of(world.settings))
    output, errors = await files_of(client, request_id)
    before = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert (await client.delete(f"/v1/files/{output}")).json()["deleted"] is True
    assert (await client.get(f"/v1/files/{output}/content")).status_code == 404
    assert (await client.get(f"/v1/files/{errors}/content")).status_code == 200, "the other file stays"
    assert (await contents(world))[0] == 4
    assert (await client.delete(f"/v1/files/{errors}")).json()["deleted"] is True
    assert await contents(world) == (0, 0, 0, 0, 0)
    for file in (output, errors):
        assert (await client.delete(f"/v1/files/{file}")).status_code == 404
    assert (await client.get(f"{BATCHES}/{request_id}/results")).status_code == 410
    after = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert after.pop("deleted_at")
    assert {**after, "failures": before["failures"]} == before
    kinds = [row[0] for row in await world.fetch("select kind from event order by event_id")]
    assert kinds.count("batch.shredded") == 1
    assert await world.fetch("select count(*) from audit where act = 'batch.shred' and target = %s", request_id) == [
        (1,)
    ]


async def test_a_batch_with_one_output_file_loses_its_contents_with_it(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))
    output, errors = await files_of(client, request_id)
    assert errors is None
    await client.delete(f"/v1/files/{output}")
    assert await contents(world) == (0, 0, 0, 0, 0)


async def test_of_two_deletions_at_once_one_removes_the_contents(client: httpx.AsyncClient, world: World) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, fail={1}, keyring=Keyring.of(world.settings))
    found = await files_of(client, request_id)
    answers = await asyncio.gather(*(client.delete(f"/v1/files/{file}") for file in found))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert await contents(world) == (0, 0, 0, 0, 0)


async def test_the_deletion_of_a_file_of_a_running_batch_only_hides_it(client: httpx.AsyncClient, world: World) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5}
    lines = [{"custom_id": str(n), "method": "POST", "url": "/v1/chat/completions", "body": body} for n in range(2)]
    asked = {"requests": lines, "endpoint": "/v1/chat/completions", "completion_window": "24h", "partial_results": True}
    made = (await client.post("/v1/batches", json=asked)).json()
    named = [file for file in (made["output_file_id"], made["error_file_id"]) if file is not None]
    assert named
    for file in named:
        assert (await client.delete(f"/v1/files/{file}")).status_code == 200
        assert (await client.get(f"/v1/files/{file}")).status_code == 404
    assert (await contents(world))[0] == 2
    await run_all(world.database, keyring=Keyring.of(world.settings))
    shown = (await client.get(f"/v1/batches/{made['id']}")).json()
    assert shown["request_counts"] == {"total": 2, "completed": 2, "failed": 0}


async def test_a_deletion_that_dies_before_its_commit_hides_no_file(
    client: httpx.AsyncClient, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = await submit(client, world.settings)
    await run_all(world.database, keyring=Keyring.of(world.settings))
    output, _ = await files_of(client, request_id)

    async def dies(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(shredding.emitter, "emit", dies)
    assert (await client.delete(f"/v1/files/{output}")).status_code == 500
    monkeypatch.undo()
    assert (await client.get(f"/v1/files/{output}/content")).status_code == 200
