"""Parts of an installation must share one object store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.api import store_check
from app.api.app import create_app
from app.cli.doctor.check import CheckStatus
from app.cli.doctor.services import object_store
from app.crypto import secret_key
from app.db.pool import Database
from app.errors import StoreNotShared, StoreTaken
from app.files import shared_storage
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from app.tenants import service as tenants
from testing.waiting import eventually
from tests.databases import Ring
from tests.maintenance.support import work
from workers.maintenance import duties


def elsewhere(settings: Settings, folder: Path, **changes: object) -> Settings:
    """The same installation on a host with another data directory."""
    return settings.model_copy(update={"data_dir": folder / "elsewhere", **changes})


async def test_a_part_with_a_store_of_its_own_is_refused_and_told_whose_store_it_lacks(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    await shared_storage.require(database, settings, "api")
    await shared_storage.require(database, settings, "steward")
    with pytest.raises(StoreNotShared) as refusal:
        await shared_storage.require(database, elsewhere(settings, tmp_path), "steward")
    for word in ("api on ", f"{tmp_path}/objects", f"{tmp_path}/elsewhere/objects"):
        assert word in refusal.value.message
    assert len([key async for key, _ in Store.of(settings).list("marker")]) == 1


async def test_a_part_with_another_data_directory_and_the_same_store_is_accepted(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    shared = (tmp_path / "shared").as_uri()
    await shared_storage.require(database, settings.model_copy(update={"storage_url": shared}), "api")
    await shared_storage.require(database, elsewhere(settings, tmp_path, storage_url=shared), "steward")


@pytest.fixture
def other(ring: Ring, settings: Settings) -> Iterator[Settings]:
    """Another installation, with a database of its own, that is told to use the same store."""
    with ring.taken() as url:
        yield settings.model_copy(update={"database_url": url})


async def test_a_store_that_is_another_installations_is_refused_and_nothing_is_removed_there(
    database: Database, settings: Settings, other: Settings
) -> None:
    await shared_storage.require(database, settings, "api")
    store = Store.of(settings)
    await store.put(object_names.upload(1, uuid4()), b"theirs")
    before = {key async for key, _ in store.list("")}
    async with Database.of(other, "test") as theirs:
        with pytest.raises(StoreTaken):
            await shared_storage.require(theirs, other, "api")
        with pytest.raises(StoreTaken):
            await duties.objects(work(theirs, other))
        assert await shared_storage.read(theirs) is None
    assert {key async for key, _ in store.list("")} == before
    await shared_storage.require(database, settings, "steward")  # of the refused one nothing is left behind
    found = await asyncio.to_thread(object_store, other)
    assert (found.status, found.fix) == (CheckStatus.FAIL, StoreTaken.remedy)


async def test_where_two_installations_have_marked_one_store_neither_sweeps_it(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    await shared_storage.require(database, settings, "api")
    store = Store.of(settings)
    await store.put(object_names.marker(uuid4()), b"another's")
    theirs = object_names.upload(1, uuid4())
    await store.put(theirs, b"theirs")
    with pytest.raises(StoreTaken):
        await shared_storage.require(database, settings, "steward")
    with pytest.raises(StoreTaken):
        await duties.objects(work(database, settings))
    assert await store.get(theirs) == b"theirs"


@pytest.mark.parametrize("dies_at", ["app.files.sql.BEGIN_MARK", "app.files.sql.MARK"])
async def test_a_part_that_dies_while_it_marks_the_store_leaves_no_marker_that_the_next_takes_for_anothers(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(dies_at, "select 1 / 0")
        with pytest.raises(psycopg.errors.DivisionByZero):
            await shared_storage.require(database, settings, "api")
    await asyncio.gather(*(shared_storage.require(database, settings, f"part {i}") for i in range(4)))
    assert len([key async for key, _ in Store.of(settings).list("marker")]) == 1


async def test_a_gpu_worker_needs_the_store_only_once_bodies_may_lie_there(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    host = elsewhere(settings, tmp_path)
    await shared_storage.require(database, settings, "api")
    await shared_storage.require_bodies(database, host, "gpu-worker")
    await shared_storage.require(database, settings.model_copy(update={"object_kb": 100}), "api")
    with pytest.raises(StoreNotShared):
        await shared_storage.require_bodies(database, host, "gpu-worker")


async def test_a_console_is_refused_too_once_the_store_may_contain_bodies(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    lonely = elsewhere(settings, tmp_path)
    await shared_storage.require(database, settings, "api")
    assert await shared_storage.checked(lonely, "console", only_bodies=True)
    await shared_storage.require(database, settings.model_copy(update={"object_kb": 100}), "api")
    with pytest.raises(StoreNotShared):
        await shared_storage.checked(lonely, "console", only_bodies=True)


async def test_an_unreachable_store_stops_no_part(database: Database, settings: Settings) -> None:
    await shared_storage.require(database, settings, "api")
    (settings.data_dir / "objects").rename(settings.data_dir / "away")
    await shared_storage.require(database, settings, "steward")


async def test_doctor_reports_a_store_that_is_not_shared_and_changes_nothing(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    unused = await asyncio.to_thread(object_store, settings)
    assert (unused.status, await shared_storage.read(database)) == (CheckStatus.OK, None)
    await shared_storage.require(database, settings, "api")
    assert (await asyncio.to_thread(object_store, settings)).status is CheckStatus.OK
    found = await asyncio.to_thread(object_store, elsewhere(settings, tmp_path))
    assert found.status is CheckStatus.FAIL
    assert "api on " in found.detail
    assert "SLACKWATER_STORAGE_URL" in found.fix


async def test_an_api_that_started_without_its_database_accepts_no_key_before_its_store_is_checked(
    database: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_check, "PAUSE_SECONDS", 0.05)
    await shared_storage.require(database, settings, "steward")
    async with database.durable() as conn:
        key = str(await tenants.create_key(conn, secret_key(settings), "acme", "test"))
    away = settings.model_copy(update={"database_url": "postgresql://nobody@127.0.0.1:1/none"})
    assert await shared_storage.checked(settings, "api") is True
    monkeypatch.setattr(shared_storage, "PATIENCE_SECONDS", 0.1)
    assert await shared_storage.checked(away, "api") is False

    # The database is back before the store has been looked at, and the store is another one.
    lonely = elsewhere(settings, tmp_path)
    app = create_app(lonely, store_checked=False)
    transport, headers = httpx.ASGITransport(app=app), {"authorization": f"Bearer {key}"}
    client = httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers)
    async with app.router.lifespan_context(app), client:

        async def asked(path: str) -> int:
            return (await client.get(path)).status_code

        for path in ("/v1/files", "/v1/batches", "/client/v4/accounts/acme/ai/batches", "/ready"):
            assert await asked(path) == 503, path
        assert await asked("/health") == 200
        lonely.data_dir.mkdir(exist_ok=True)
        (settings.data_dir / "objects").rename(lonely.data_dir / "objects")
        await eventually(lambda: asked("/v1/files"), until=lambda found: found == 200)
        assert await asked("/ready") == 200
