"""Parts of an installation must share one object store."""

import asyncio
from pathlib import Path

import pytest

from app.cli.doctor.check import CheckStatus
from app.cli.doctor.services import object_store
from app.db.pool import Database
from app.errors import StoreNotShared
from app.files import shared_storage
from app.settings import Settings
from app.storage.store import Store


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


async def test_a_gpu_worker_needs_the_store_only_once_bodies_may_lie_there(
    database: Database, settings: Settings, tmp_path: Path
) -> None:
    host = elsewhere(settings, tmp_path)
    await shared_storage.require(database, settings, "api")
    await shared_storage.require_bodies(database, host, "gpu-worker")
    await shared_storage.require(database, settings.model_copy(update={"object_kb": 100}), "api")
    with pytest.raises(StoreNotShared):
        await shared_storage.require_bodies(database, host, "gpu-worker")


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
