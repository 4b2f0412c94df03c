"""The object store: the same behaviour for a folder and for S3."""

import os
import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

from app import clock
from app.errors import StorageError, StorageFull
from app.processes import free_port
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from tests.disks import ballast, small_disk

BODY = os.urandom(3_000_000)


async def listed(store: Store, prefix: str) -> dict[str, int]:
    return {key: size async for key, size in store.list(prefix)}


async def test_an_object_is_read_whole_in_parts_and_as_a_stream(store: Store) -> None:
    await store.put("a/b", BODY)
    assert await store.get("a/b") == BODY
    assert await store.get_range("a/b", 1000, 50) == BODY[1000:1050]
    assert await store.get_range("a/b", len(BODY) - 5, 50) == BODY[-5:]
    blocks = [block async for block in store.stream("a/b")]
    assert b"".join(blocks) == BODY
    assert len(blocks) > 1
    assert b"".join([block async for block in store.stream("a/b", (2_000_000, 50))]) == BODY[2_000_000:2_000_050]
    assert b"".join([block async for block in store.stream("a/b", (1000, 2_500_000))]) == BODY[1000:2_501_000]


async def test_a_second_put_replaces_the_first(store: Store) -> None:
    await store.put("a", b"old")
    await store.put("a", b"")
    assert await store.get("a") == b""


async def test_a_store_tells_when_an_object_was_put(store: Store) -> None:
    await store.put("a/b", b"x")
    [(key, at)] = [each async for each in store.times("a/")]
    assert key == "a/b"
    assert abs(clock.now() - at) < timedelta(minutes=5)


async def test_a_missing_object_is_distinguished_from_other_failures(store: Store) -> None:
    await store.put("there", b"x")
    for read in (store.get("gone"), store.get_range("gone", 0, 1), anext(aiter(store.stream("gone")))):
        with pytest.raises(StorageError) as caught:
            await read
        assert caught.value.missing


async def test_a_prefix_counts_in_whole_segments(store: Store) -> None:
    await store.put_all((f"day/1/{number}", b"x" * number) for number in range(20))
    await store.put("day/10/0", b"y")
    assert await listed(store, "day/1/") == {f"day/1/{number}": number for number in range(20)}
    assert await store.delete_prefix("day/1") == 20
    assert await listed(store, "day") == {"day/10/0": 1}
    assert await listed(store, "nothing") == {}
    assert await store.delete_prefix("nothing") == 0


@pytest.mark.slow
async def test_more_objects_than_a_page_are_listed_and_deleted(store: Store) -> None:
    await store.put_all(((f"many/{number}", b"") for number in range(1100)), at_once=32)
    assert len(await listed(store, "many")) == 1100
    assert await store.delete_prefix("many") == 1100
    assert await listed(store, "many") == {}


async def test_deleting_a_missing_object_is_no_error_and_the_other_keys_are_deleted(store: Store) -> None:
    await store.put("a/1", b"x")
    await store.put("a/2", b"x")
    await store.delete(["gone/0", "a/1", "gone/1", "a/2"])
    await store.delete(["gone/0"])
    await store.delete([])
    assert await listed(store, "a") == {}


async def test_of_several_puts_the_first_error_is_raised_after_all_have_ended(tmp_path: Path) -> None:
    store = Store.of(Settings(data_dir=tmp_path))
    await store.put("ok/1", b"x")
    with pytest.raises(StorageError):
        await store.put_all([("ok/0", b"x"), ("ok/1/below", b"x"), ("ok/2", b"x")], at_once=2)
    assert await listed(store, "ok") == {"ok/0": 1, "ok/1": 1, "ok/2": 1}


async def test_a_folder_leaves_no_empty_directories_and_no_partial_files(tmp_path: Path) -> None:
    store = Store.of(Settings(data_dir=tmp_path))
    await store.put("a/b/c/d", b"x")
    assert [path.name for path in (tmp_path / "objects").rglob("*") if path.is_file()] == ["d"]
    await store.delete_prefix("a")
    assert list((tmp_path / "objects").iterdir()) == []


async def test_a_missing_folder_is_unavailable_not_empty(tmp_path: Path) -> None:
    store = Store.of(Settings(data_dir=tmp_path))
    await store.put("a", b"x")
    shutil.move(tmp_path / "objects", tmp_path / "elsewhere")
    with pytest.raises(StorageError) as caught:
        await store.get("a")
    assert not caught.value.missing


async def test_a_server_that_does_not_answer_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    nobody = f"http://127.0.0.1:{free_port()}"
    store = Store.of(Settings(data_dir=tmp_path, storage_url="s3://bucket", storage_endpoint=nobody))
    with pytest.raises(StorageError) as caught:
        await store.put("a", b"x")
    assert not caught.value.missing
    assert nobody not in caught.value.message


async def test_a_full_folder_raises_its_own_error_and_works_again_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "objects", 2):
        store = Store.of(Settings(data_dir=tmp_path))
        filler = ballast(tmp_path / "objects", 100_000)
        with pytest.raises(StorageFull):
            await store.put("a", BODY[:500_000])
        filler.unlink()
        assert await listed(store, "a") == {}
        await store.put("a", BODY[:500_000])


def test_keys_begin_with_the_day_of_their_batch_and_a_results_key_ends_in_its_fence() -> None:
    batch_id = ((date(2026, 11, 21) - date(2024, 1, 1)).days << 36) + 7
    assert object_names.payload(batch_id, 3) == f"payload/20261121/{batch_id}/3"
    assert object_names.result(batch_id, 2, 3, (11, 12, 13)) == f"result/20261121/{batch_id}/2/3/11-12-13"
    for prefix, key in zip(object_names.of_day(date(2026, 11, 21)), ("payload", "result"), strict=True):
        assert prefix == f"{key}/20261121/"
