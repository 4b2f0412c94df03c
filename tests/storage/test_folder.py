"""Objects in a folder: listed objects are complete, even during deletes, and a missing root folder is not created."""

import asyncio
import shutil
import threading
from pathlib import Path

import pytest

from app import optional_packages
from app.errors import StorageError
from app.optional_packages import NotInstalled
from app.settings import Settings
from app.storage import folder as folders
from app.storage.folder import Folder
from app.storage.store import Store
from testing.waiting import LIMIT_SECONDS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder for objects."""
    root = tmp_path / "objects"
    root.mkdir()
    return root


async def listed(folder: Folder, prefix: str) -> set[str]:
    return {key async for page in folder.pages(prefix) for key, *_ in page}


async def test_a_put_is_visible_only_when_it_is_complete(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, written, go_on = Folder(root), asyncio.Event(), threading.Event()
    loop, write = asyncio.get_running_loop(), folders._write

    def slow(file: Path, body: bytes) -> None:
        write(file, body)
        loop.call_soon_threadsafe(written.set)
        assert go_on.wait(LIMIT_SECONDS)

    await folder.put("a/old", b"old")
    monkeypatch.setattr(folders, "_write", slow)
    for key in ("a/new", "a/old"):
        written.clear()
        go_on.clear()
        put = asyncio.create_task(folder.put(key, b"new"))
        await written.wait()
        assert await listed(folder, "a") == ({"a/old"} if key == "a/new" else {"a/old", "a/new"})
        assert await folder.get("a/old") == b"old"
        go_on.set()
        await put
        assert await folder.get(key) == b"new"


async def test_a_put_that_fails_leaves_nothing(root: Path, tmp_path: Path) -> None:
    folder = Folder(root)
    with pytest.raises(FileNotFoundError):
        await folder.put_file("a/b", tmp_path / "nowhere")
    assert [path for path in root.rglob("*") if path.is_file()] == []


async def test_puts_succeed_while_deletes_remove_their_directories(root: Path) -> None:
    folder = Folder(root)

    async def churn(name: str) -> None:
        for _ in range(100):
            await folder.put(f"day/1/{name}", b"x")
            await folder.delete([f"day/1/{name}"])
        await folder.put(f"day/1/{name}", name.encode())

    await asyncio.gather(*(churn(name) for name in "abcdef"))
    assert {await folder.get(f"day/1/{name}") for name in "abcdef"} == {name.encode() for name in "abcdef"}


async def test_a_missing_root_folder_is_not_recreated(root: Path) -> None:
    store = Store(Folder(root))
    await store.put("a/b", b"x")
    shutil.rmtree(root)
    for call in (store.put("a/b", b"y"), store.delete(["a/b"]), store.delete_prefix("a")):
        with pytest.raises(StorageError) as caught:
            await call
        assert not caught.value.missing
    assert not root.exists()


async def test_a_range_beyond_the_end_is_an_error_not_empty(root: Path) -> None:
    store = Store(Folder(root))
    await store.put("a", b"four")
    assert await store.get_range("a", 3, 10) == b"r"
    with pytest.raises(StorageError):
        await store.get_range("a", 4, 1)


def test_s3_without_its_client_names_the_optional_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optional_packages, "find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match="S3 client") as caught:
        Store.of(Settings(data_dir=tmp_path, storage_url="s3://bucket/without-client"))
    assert "'slackwater[s3]'" in caught.value.remedy
