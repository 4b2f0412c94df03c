"""Files: their rows and their objects."""

import asyncio
import uuid
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import ForeignKeyViolation

from app import cells
from app.db.pool import Database
from app.errors import NotFound, StorageError
from app.files import ids, service, upload_parts
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from app.tenants.service import Tenant
from tests.webhooks.support import make_tenant


@given(st.uuids())
def test_a_formatted_id_is_parsed_to_the_same_file(file_id: UUID) -> None:
    written = ids.format_id(file_id)
    assert len(written) == 27
    assert ids.parse_id(written) == file_id


@pytest.mark.parametrize("text", ["", "file-", "file-" + "z" * 22, "file-" + "0" * 21, "file-" + "é" * 22, "0" * 22])
def test_a_text_that_is_not_an_id_parses_to_none(text: str) -> None:
    assert ids.parse_id(text) is None


async def kept(database: Database, store: Store, folder: Path, **changes: Any) -> service.File:
    content = folder / "content"
    content.write_bytes(b"content")
    values = {"tenant_id": 1, "purpose": "batch", "filename": "x", "size": 7, "lines": 1, "problems": [], "demand": {}}
    values |= {"expires_seconds": 3600.0, "file_id": cells.new_timed_id()} | changes
    return await service.keep(database, store, content, **values)


async def test_an_expired_file_is_not_found_and_is_deleted(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    store = Store.of(settings)
    async with database.durable() as conn:
        await make_tenant(conn)
        old, new = await kept(database, store, tmp_path, expires_seconds=-1.0), await kept(database, store, tmp_path)
        with pytest.raises(NotFound):
            await service.get(conn, 1, ids.format_id(old.file_id))
        assert await service.expire(database, store) == 1
        assert (await service.get(conn, 1, ids.format_id(new.file_id))).file_id == new.file_id
    with pytest.raises(StorageError):
        await store.get(object_names.upload(1, old.file_id))
    assert await store.get(object_names.upload(1, new.file_id)) == b"content"
    assert await service.expire(database, store) == 0


async def test_an_upload_that_cannot_be_registered_leaves_nothing_behind(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    store = Store.of(settings)
    with pytest.raises(ForeignKeyViolation):
        await kept(database, store, tmp_path, tenant_id=99)
    assert [key async for key, _ in store.list("file/99/")] == []


async def test_files_of_others_are_not_found(database: Database, settings: Settings, tmp_path: Path) -> None:
    async with database.durable() as conn:
        await make_tenant(conn)
        await make_tenant(conn, 2)
        file = await kept(database, Store.of(settings), tmp_path)
        with pytest.raises(NotFound):
            await service.get(conn, 2, ids.format_id(file.file_id))
        assert await service.listing(conn, 2) == ([], False)


async def test_a_file_that_never_arrived_completely_stays_hidden_and_is_deleted(
    database: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API dies after the put of the object and before the file becomes visible."""
    store = Store.of(settings)
    put = store.put_file

    async def died(key: str, path: Path) -> None:
        await put(key, path)
        raise asyncio.CancelledError

    async with database.durable() as conn:
        await make_tenant(conn)
        with monkeypatch.context() as patch:
            patch.setattr(store, "put_file", died)
            with pytest.raises(asyncio.CancelledError):
                await kept(database, store, tmp_path)
        assert len([key async for key, _ in store.list("file")]) == 1
        assert await service.listing(conn, 1) == ([], False)
        assert await service.expire(database, store) == 0  # it may still arrive
        await conn.execute("update file set expires_at = now()")
        assert await service.expire(database, store) == 1
    assert [key async for key, _ in store.list("file")] == []


async def test_a_delete_that_died_half_way_is_ended_by_the_steward(
    database: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.of(settings)

    async def died(*_: object) -> None:
        raise asyncio.CancelledError

    async with database.durable() as conn:
        await make_tenant(conn)
        file = await kept(database, store, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(store, "delete", died)
            with pytest.raises(asyncio.CancelledError):
                await service.delete(database, store, Tenant(1, "acme"), file)
        with pytest.raises(NotFound):
            await service.get(conn, 1, ids.format_id(file.file_id))
        old = await kept(database, store, tmp_path, expires_seconds=-1.0)
    assert (
        await service.expire(database, store, grace_days=7) == 2
    )  # what expired keeps its object, what was deleted does not
    assert [key async for key, _ in store.list("file")] == [object_names.upload(1, old.file_id)]


async def test_objects_without_a_row_are_swept_and_no_others(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    store = Store.of(settings)
    async with database.durable() as conn:
        await make_tenant(conn)
        file = await kept(database, store, tmp_path)
        upload = await upload_parts.create(conn, 1, filename="x", purpose="batch", size=7, file_seconds=60)
    part_id, _ = await upload_parts.add(database, store, 1, upload.upload_id, tmp_path / "content", 7)
    there = {
        object_names.upload(1, file.file_id),
        object_names.part(1, upload.upload_id, part_id),
        "file/notes",
        "payload/20261122/1/0",
    }
    for key in (
        object_names.upload(1, uuid.uuid4()),
        object_names.part(1, uuid.uuid4(), part_id),
        "file/notes",
        "payload/20261122/1/0",
    ):
        await store.put(key, b"content")
    assert await service.sweep(database, store) == 2
    assert {key async for key, _ in store.list("")} == there
