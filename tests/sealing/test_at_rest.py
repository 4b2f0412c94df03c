"""Claims about what is on disk, from submit to result: real API, real queue, real worker, scripted engine."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import psycopg
import pytest
from pydantic import SecretStr

from app.batches import accounts, key_rotation
from app.batches.intake.spool import Spool
from app.console.pages import item
from app.errors import Conflict, KeysUnavailable
from app.queue.bodies import StoredBodies
from app.sealing import batch_keys, keyring
from app.sealing.keyring import Keyring, WrappedKey
from app.settings import Settings
from app.storage.store import Store
from testing.fakes.vault import TOKEN, FakeVault
from tests.api import in_process
from tests.api.support import BATCHES, MODEL, SUBMIT, run_all, uploaded
from tests.gpu.world import World
from tests.sealing.support import CLEAR, PLANTED, holders, on_disk

LONG = PLANTED + " and so on" * 400
ITEMS = [{"prompt": f"{PLANTED} {n}", "max_tokens": 5} for n in range(3)] + [{"prompt": LONG, "max_tokens": 5}]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Everything is sealed, larger bodies go to the store, and spools to files."""
    return settings.model_copy(update={"encrypt": "on", "object_kb": 2, "spool_memory_mb": 0.000001})


def file_line(number: int, text: str) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 5}
    whole = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return orjson.dumps(whole) + b"\n"


async def submit(client: httpx.AsyncClient, items: list[Any] = ITEMS) -> str:
    answer = await client.post(SUBMIT, json={"requests": items})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["request_id"])


async def answered(client: httpx.AsyncClient, request_id: str) -> list[Any]:
    read = await client.get(f"{BATCHES}/{request_id}/results")
    assert read.status_code == 200, read.text
    return [json.loads(line) for line in read.text.splitlines()]


async def test_prompts_and_answers_are_nowhere_on_disk_and_read_as_ever(
    client: httpx.AsyncClient, world: World, settings: Settings
) -> None:
    request_id = await submit(client)
    file_id = await uploaded(client, b"".join(file_line(n, f"{PLANTED} {n}") for n in range(3)) + file_line(3, LONG))
    made = await client.post(
        "/v1/batches",
        json={"input_file_id": file_id, "endpoint": "/v1/chat/completions", "completion_window": "24h"},
    )
    assert made.status_code == 200, made.text
    async with world.worker():
        await world.until("count(*) = 2 from batch where finalized_at is not null")
    assert await on_disk(world.database, settings.data_dir) == []

    shown = await answered(client, request_id)
    assert [PLANTED in json.dumps(each["result"]) for each in shown] == [True] * 4
    batch = (await client.get(f"/v1/batches/{made.json()['id']}")).json()
    output = await client.get(f"/v1/files/{batch['output_file_id']}/content")
    assert output.text.count(f"echo: {PLANTED}") == 4
    content = await client.get(f"/v1/files/{file_id}/content")
    assert content.content.count(PLANTED.encode()) == 4
    part = await client.get(f"/v1/files/{file_id}/content", headers={"range": "bytes=100-180"})
    assert part.content == content.content[100:181]


async def test_without_encryption_the_same_search_finds_them(
    client: httpx.AsyncClient, world: World, settings: Settings, key: str
) -> None:
    clear = settings.model_copy(update={"encrypt": "off", "object_kb": 0})
    async with in_process.running(clear, key) as (_, plain):
        await submit(plain, [{"prompt": CLEAR, "max_tokens": 5}])
    assert await on_disk(world.database, settings.data_dir, text=CLEAR) != []


async def test_errors_that_quote_a_prompt_are_sealed_and_shown(
    client: httpx.AsyncClient, world: World, settings: Settings
) -> None:
    world.engine.script({"match": PLANTED, "mode": "status", "status": 400, "message": f"cannot read: {PLANTED}"})
    request_id = await submit(client, ITEMS[:2])
    async with world.worker():
        await world.until("count(*) = 1 from batch where finalized_at is not null")
    assert await on_disk(world.database, settings.data_dir) == []
    shown = (await client.get(f"{BATCHES}/{request_id}")).json()["result"]
    assert [(each["count"], PLANTED in each["message"]) for each in shown["failures"]] == [(2, True)]
    items = (await client.get(f"{BATCHES}/{request_id}/items")).json()["result"]
    assert all(PLANTED in item["message"] for item in items)
    classes = (await client.get(f"{BATCHES}/{request_id}/errors")).json()["result"]
    assert [(each["count"], PLANTED in each["message"]) for each in classes] == [(2, True)]
    poll = await client.post(SUBMIT, json={"request_id": request_id})
    assert poll.status_code == 200, "every item was refused for its own reason, which the class of a sealed error tells"


async def test_spools_hold_no_prompt_while_they_are_filled(
    client: httpx.AsyncClient, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    close = Spool.close

    def look(spool: Spool) -> None:
        close(spool)
        spool._spool.rollover()
        file = spool._spool._file  # type: ignore[attr-defined]
        file.seek(0)
        seen.append([PLANTED] if PLANTED.encode() in file.read() else [])

    monkeypatch.setattr(Spool, "close", look)
    await submit(client)
    assert seen == [[]]


async def test_uploads_in_parts_are_sealed_and_come_together(
    client: httpx.AsyncClient, settings: Settings, world: World
) -> None:
    content = b"".join(file_line(n, PLANTED) for n in range(300))
    half = len(content) // 2
    given = {"purpose": "batch", "filename": "in.jsonl", "bytes": len(content), "mime_type": "application/jsonl"}
    upload = (await client.post("/v1/uploads", json=given)).json()["id"]
    ids = []
    for piece in (content[:half], content[half:]):
        sent = await client.post(f"/v1/uploads/{upload}/parts", files={"data": ("x", piece)})
        assert sent.status_code == 200, sent.text
        ids.append(sent.json()["id"])
    assert holders(settings.data_dir) == []
    done = await client.post(f"/v1/uploads/{upload}/complete", json={"part_ids": ids})
    assert done.status_code == 200, done.text
    file = done.json()["file"]["id"]
    assert (await client.get(f"/v1/files/{file}/content")).content == content
    assert await on_disk(world.database, settings.data_dir) == []


async def test_background_responses_and_their_events_are_sealed(
    client: httpx.AsyncClient, world: World, settings: Settings
) -> None:
    asked = {"model": MODEL, "input": PLANTED, "background": True, "stream": True}
    async with world.worker():
        streamed = await client.post("/v1/responses", json=asked)
    assert streamed.status_code == 200, streamed.text
    assert PLANTED in streamed.text
    assert await on_disk(world.database, settings.data_dir) == []
    [(body, events)] = await world.fetch(
        "select (select count(*) from item_result), (select count(*) from response_events)"
    )
    assert body == 1
    assert events > 0
    response_id = json.loads(streamed.text.split("data: ")[1].split("\n")[0])["response"]["id"]
    assert (await client.delete(f"/v1/responses/{response_id}")).status_code == 200
    assert await world.fetch("select from batch_key") == []


async def test_the_console_reveals_what_is_sealed(client: httpx.AsyncClient, world: World, settings: Settings) -> None:
    await submit(client)
    async with world.worker():
        await world.until("count(*) = 1 from batch where finalized_at is not null")
    [(batch_id,)] = await world.fetch("select batch_id from batch")
    parts: Any = SimpleNamespace(reader=world.database, settings=settings, admission=SimpleNamespace(withheld=print))
    row: Any = SimpleNamespace(batch_id=batch_id, policy=None, request_id=None, account="acme")
    for seq in (0, 3):  # in a row, in the object store
        shown = await item._bodies(parts, row, seq)
        assert all(PLANTED in (text or "") for text in shown.values())


async def test_switching_encryption_on_and_off_leaves_every_batch_readable(
    client: httpx.AsyncClient, world: World, settings: Settings, database_url: str
) -> None:
    await submit(client, ITEMS[:1])
    clear = world.settings.model_copy(update={"encrypt": "off"})
    key = client.headers["authorization"].removeprefix("Bearer ")
    async with in_process.running(clear, key) as (_, plain):
        second = await submit(plain, [{"prompt": CLEAR, "max_tokens": 5}])
        async with world.worker(encrypt="off"):
            await world.until("count(*) = 2 from batch where finalized_at is not null")
        for request_id in (second, *[row[0] for row in await world.fetch("select request_id::text from batch")]):
            text = CLEAR if request_id == second else PLANTED
            assert text in json.dumps(await answered(plain, request_id))
    with psycopg.connect(database_url) as conn:
        firsts = conn.execute("select distinct get_byte(body, 0) = 1 from item_result").fetchall()
    assert len(firsts) == 2, "an answer is stored as its batch is"


async def test_a_row_moved_to_another_item_is_refused_not_shown(client: httpx.AsyncClient, world: World) -> None:
    await submit(client, ITEMS[:2])
    async with world.database.durable() as conn:
        await conn.execute(
            "update item_payload p set body = o.body from item_payload o"
            " where p.seq = 0 and o.seq = 1 and p.batch_id = o.batch_id"
        )
    [(body,)] = await world.fetch("select body from item_payload where seq = 0")
    [(batch_id,)] = await world.fetch("select batch_id from batch")
    bodies = StoredBodies(world.database, Keyring.of(world.settings), batch_id)
    assert PLANTED.encode() in await bodies.payload(1, bytes(body))
    with pytest.raises(KeysUnavailable):
        await bodies.payload(0, bytes(body))


async def test_without_the_provider_ingest_answers_503_and_stores_nothing_and_workers_wait_for_it(
    client: httpx.AsyncClient, world: World, settings: Settings, key: str
) -> None:
    async with FakeVault() as vault:
        changed = world.settings.model_copy(update={"key_provider": vault.url, "vault_token": SecretStr(TOKEN)})
        async with in_process.running(changed, key) as (_, client):
            request_id = await submit(client, ITEMS[:2])
            vault.away = True
            refused = await client.post(SUBMIT, json={"requests": ITEMS})
            assert refused.status_code == 503
            assert "Vault answered 503" in refused.text
            line = file_line(0, PLANTED)
            sent = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("in.jsonl", line)})
            assert sent.status_code == 503
            assert await world.fetch("select count(*), (select count(*) from file) from batch") == [(1, 0)]
            assert await world.fetch("select count(*) from item_payload") == [(2,)]
            keyring.forget_cached()
            running = World(changed, world.database, world.engine, world.tenant, world.pool)
            async with running.worker():
                await world.until("exists (select from batch_key where failure like '%%503%%')")
                why = (await client.get(f"{BATCHES}/{request_id}/why")).json()["result"]
                assert "cannot be decrypted" in json.dumps(why)
                assert not world.engine.count
                vault.away = False
                await world.until("count(*) = 1 from batch where finalized_at is not null")
            assert PLANTED in json.dumps(await answered(client, request_id))


async def test_after_a_rotation_everything_opens_and_a_backup_of_the_wrapped_keys_does_not(
    client: httpx.AsyncClient, world: World, settings: Settings
) -> None:
    request_id = await submit(client)
    file_id = await uploaded(client, file_line(0, PLANTED))
    await run_all(world.database, keyring=Keyring.of(settings))
    backup = await world.fetch("select batch_id, kek, wrapped from batch_key")
    keyring.forget_cached()
    done = await key_rotation.rotate(world.database, settings, "acme")
    assert done.rewrapped == 2
    assert len(await answered(client, request_id)) == 4
    assert PLANTED in (await client.get(f"/v1/files/{file_id}/content")).text
    batch_id, kek, wrapped = backup[0]
    with pytest.raises(KeysUnavailable) as refusal:
        await Keyring.of(settings).open(WrappedKey(kek, bytes(wrapped)), batch_keys.context(batch_id))
    assert refusal.value.gone
    assert {file.stem for file in (settings.data_dir / "keys").iterdir()} == {done.kek}
    again = await submit(client, ITEMS[:1])
    assert await world.fetch("select count(*) from batch_key where kek = %s", done.kek) == [(2,)]
    assert again
    rows = await world.fetch(
        "select act, account, body::json->'before'->>'key' from audit where target = 'acme' order by audit_id"
    )
    assert rows[-2:] == [("account.rotate_kek", "acme", kek), ("account.kek_destroyed", "acme", kek)]


async def test_a_rotation_that_is_refused_leaves_no_row(world: World, settings: Settings) -> None:
    with pytest.raises(Conflict):
        await key_rotation.rotate(world.database, settings, "acme")
    assert await world.fetch("select act from audit where act like 'account.%%kek%%'") == []


async def test_a_rotation_that_was_killed_is_continued(
    client: httpx.AsyncClient, world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await submit(client, ITEMS[:1])
    ring, calls = Keyring.of(settings), 0
    whole = ring.rewrapped

    async def dies(*given: Any) -> bytes:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise asyncio.CancelledError
        return await whole(*given)

    monkeypatch.setattr(ring, "rewrapped", dies)
    with pytest.raises(asyncio.CancelledError):
        await key_rotation.rotate(world.database, settings, "acme")
    assert len(list((settings.data_dir / "keys").iterdir())) == 2
    done = await key_rotation.rotate(world.database, settings, "acme")
    assert done.rewrapped == 2
    assert await world.fetch("select distinct kek from batch_key") == [(done.kek,)]
    assert await world.fetch("select retired from account_kek") == [(None,)]


async def test_with_an_account_its_key_goes(client: httpx.AsyncClient, world: World, settings: Settings) -> None:
    await submit(client, ITEMS[:1])
    await uploaded(client, file_line(0, PLANTED))
    assert len(list((settings.data_dir / "keys").iterdir())) == 1
    async with world.database.transaction() as conn:
        await accounts.close(conn, "acme")
    while not await accounts.sweep(world.database, Store.of(settings), Keyring.of(settings)):
        await asyncio.sleep(0.05)
    assert list((settings.data_dir / "keys").iterdir()) == []
    assert await world.fetch("select count(*) from account_kek") == [(0,)]
