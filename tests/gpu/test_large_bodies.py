"""Items and answers too large for rows, from submit to poll: real store, real queue, real worker, scripted engine."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from app.admission.admission import Admitted, no_admission
from app.batches import submit as batches
from app.batches.openai import background_responses
from app.batches.validation.openai import response as examine
from app.engines import catalogue
from app.engines.requests import RESPONSES
from app.errors import StoreNotShared
from app.files import shared_storage
from app.queue import reads, response_log
from app.queue.types import Kind
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant
from testing.waiting import eventually, in_time
from tests.gpu.world import MODEL, World
from tests.storage.support import s3_settings
from workers.gpu.tuning import WorkerTuning

KB = 1024
in_a_folder = pytest.mark.parametrize("settings", ["folder"], indirect=True)  # one that the test takes away


@pytest.fixture(params=["folder", "s3"])
def settings(settings: Settings, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Bodies beyond 100 KB go to a store of either kind."""
    changes: dict[str, object] = {"object_kb": 100}
    if request.param == "s3":
        at = s3_settings(request, monkeypatch, settings.data_dir)
        changes |= {"storage_url": at.storage_url, "storage_endpoint": at.storage_endpoint}
    return settings.model_copy(update=changes)


def prompt(seq: int, kilobytes: int) -> str:
    return f"{seq}:" + "x" * (kilobytes * KB)


async def submit(world: World, sizes: list[int]) -> uuid.UUID:
    """A batch of items of so many KB each, taken in as the API does."""
    model = catalogue.load(world.settings.models_file).resolve(MODEL)
    assert model is not None
    order = batches.Order(
        Tenant(world.tenant, "acme"), replace(model, context_window=1_000_000), admission=no_admission()
    )

    async def blocks() -> AsyncIterator[bytes]:
        for seq, size in enumerate(sizes):
            yield orjson.dumps({"prompt": prompt(seq, size), "max_tokens": 10}) + b"\n"

    return await batches.submit_lines(world.database, world.settings, order, blocks())


async def answers(world: World, request_id: uuid.UUID) -> list[tuple[bool, str]]:
    """(ok, what the engine said or the error) by item."""
    status = await reads.status(world.database, world.tenant, request_id)
    assert status is not None
    pages = reads.results(world.database, status.batch_id, status.run, store=Store.of(world.settings))
    items = [item async for page in pages for item in page]
    said = [orjson.loads(item.body or b"") for item in items]
    return [
        (item.ok, body["choices"][0]["message"]["content"] if item.ok else body["message"])
        for item, body in zip(items, said, strict=True)
    ]


async def batch_id(world: World) -> int:
    [(found,)] = await world.fetch("select batch_id from batch")
    return int(found)


async def objects(world: World, prefix: str) -> dict[str, int]:
    return {key: size async for key, size in Store.of(world.settings).list(prefix)}


async def test_an_item_of_300_kb_is_in_the_store_not_in_postgres_and_answered_right(world: World) -> None:
    sizes = [1, 300, 1, 300, 90]
    request_id = await submit(world, sizes)
    async with world.worker():
        await world.finished(await batch_id(world))
    assert await answers(world, request_id) == [(True, "echo: " + prompt(seq, size)) for seq, size in enumerate(sizes)]
    for table, prefix in (("item_payload", "payload"), ("item_result", "result")):
        rows = await world.fetch(f"select seq, stored, octet_length(body), body from {table} order by seq")
        assert [(seq, stored) for seq, stored, _, _ in rows] == [
            (0, False), (1, True), (2, False), (3, True), (4, False)
        ]  # fmt: skip
        assert all(length < 100 for _, stored, length, _ in rows if stored)
        kept = await objects(world, prefix)
        assert set(kept) == {bytes(body).decode() for _, stored, _, body in rows if stored}
        assert all(size > 300 * KB for size in kept.values())


@in_a_folder
async def test_while_the_store_is_away_large_items_wait_and_small_ones_do_not(world: World) -> None:
    request_id = await submit(world, [1, 300, 1])
    folder = world.settings.data_dir / "objects"
    folder.rename(folder.with_name("away"))
    async with world.worker(tuning=WorkerTuning(full_engine_seconds=0.3)):
        await world.until("count(*) = 2 from item_result")
        await world.until("exists (select from chunk where state = 'delayed')")
        folder.with_name("away").rename(folder)
        await world.finished(await batch_id(world))
    assert [ok for ok, _ in await answers(world, request_id)] == [True] * 3


@in_a_folder
async def test_an_answer_waits_for_the_store_and_is_not_asked_for_again(world: World) -> None:
    world.engine.latency = 2
    request_id = await submit(world, [300, 1])
    folder = world.settings.data_dir / "objects"
    async with world.worker(headroom="static", batch_max_in_flight=2):
        await eventually(lambda: world.engine.count.total() >= 2)
        assert not world.engine.finished
        folder.rename(folder.with_name("away"))
        folder.write_text("in the way")
        await eventually(lambda: world.engine.finished.total() >= 2)
        folder.unlink()
        folder.with_name("away").rename(folder)
        await world.finished(await batch_id(world))
    assert [ok for ok, _ in await answers(world, request_id)] == [True, True]
    assert world.engine.count.total() == 2


async def test_an_item_whose_object_is_gone_is_an_error_and_disturbs_no_other(world: World) -> None:
    request_id = await submit(world, [300, 1, 300])
    batch = await batch_id(world)
    [(key,)] = await world.fetch("select body from item_payload where seq = 0")
    await Store.of(world.settings).delete([bytes(key).decode()])
    async with world.worker():
        await world.finished(batch)
    found = await answers(world, request_id)
    assert [ok for ok, _ in found] == [False, True, True]
    assert "no longer in the object store" in found[0][1]


@in_a_folder
async def test_a_worker_that_started_before_there_were_bodies_without_their_store_fails_no_item_and_ends(
    world: World, tmp_path: Path
) -> None:
    await shared_storage.require(world.database, world.settings, "api")
    async with world.worker(data_dir=tmp_path / "elsewhere", object_kb=0) as running:
        await asyncio.sleep(0.1)
        request_id = await submit(world, [1, 300, 1])
        async with in_time():
            with pytest.raises(StoreNotShared):
                await asyncio.shield(running.task)
        running.task = asyncio.create_task(asyncio.sleep(0))
    assert await world.fetch("select seq from item_result where ok = 0") == []
    await world.until("count(*) = 0 from worker")
    await world.fetch("update chunk set not_before = now() where state = 'delayed' returning 1")
    async with world.worker():
        await world.finished(await batch_id(world))
    assert [ok for ok, _ in await answers(world, request_id)] == [True] * 3


@pytest.mark.parametrize(("most", "told"), [(1, "incomplete"), (50, "completed")])
async def test_an_answer_in_the_store_that_was_cut_short_is_told_as_incomplete(
    world: World, most: int, told: str
) -> None:
    model = replace(catalogue.load(world.settings.models_file).models[MODEL], context_window=1_000_000)
    item = {"model": MODEL, "input": prompt(0, 300), "max_output_tokens": most}
    tenant = Tenant(world.tenant, "acme")
    order = batches.Order(
        tenant, model, endpoint=RESPONSES, kind=Kind.RESPONSE, open_ended=True, admission=no_admission()
    )
    admitted = Admitted(model, item, examine(item, batches.rules_of(model, lambda _: 10, stream=True)))
    request_id = await background_responses.create(world.database, world.settings, order, admitted, asked=item)
    async with world.worker():
        await world.finished(await batch_id(world))
    assert await world.fetch("select stored from item_result") == [(True,)]
    single = await background_responses.get(world.database, world.settings, tenant, request_id)
    assert background_responses.status_of(single) == told
    async with world.database.relaxed() as conn:  # what its webhook is called
        assert bool(await response_log.incomplete(conn, [await batch_id(world)])) == (told == "incomplete")
