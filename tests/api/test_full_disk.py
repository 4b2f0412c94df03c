"""Claims about full disks: the answer is 507 with a reason, nothing is stored, and a later submit works. The disks are real."""

import os
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from app.api.app import create_app
from app.crypto import secret_key
from app.db import embedded
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from tests.api.support import RUN, SUBMIT
from tests.databases import TEMPLATE, Ring
from tests.disks import ballast, small_disk

MB = 2**20
NDJSON = {"content-type": "application/x-ndjson"}


def body(megabytes: float) -> bytes:
    """NDJSON of items that do not compress, of 20 KB each."""
    items = max(1, int(megabytes * MB / 20_000))
    return b"".join(b'{"prompt":"%b"}\n' % os.urandom(10_000).hex().encode() for _ in range(items))


@asynccontextmanager
async def api(settings: Settings, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """The API in process, one for a whole test, so recovery needs no restart."""
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=transport, base_url="http://api", headers={"authorization": f"Bearer {key}"}
        ) as client,
    ):
        yield client


def rows(database_url: str) -> list[tuple[object, ...]]:
    """Batches, items, chunks and events by number; then the fair order as it is."""
    counts = ", ".join(f"(select count(*) from {table})" for table in ("batch", "item_payload", "chunk", "event"))
    with psycopg.connect(database_url) as conn:
        return [*conn.execute(f"select {counts}"), *conn.execute("select * from sched")]


def check_full(answer: httpx.Response, *words: str) -> None:
    """507 in the envelope; the message holds every word, and what to do."""
    content = answer.json()
    assert (answer.status_code, content["success"], content["result"]) == (507, False, None), answer.text
    assert answer.headers["x-should-retry"] == "false"
    [error] = content["errors"]
    assert error["code"] == 5001
    for word in (*words, "nothing was stored", "freed space"):
        assert word in error["message"]


async def check_taken(client: httpx.AsyncClient, answer: httpx.Response) -> None:
    """A 200 whose batch can be polled."""
    assert answer.status_code == 200, answer.text
    request_id = answer.json()["result"]["request_id"]
    assert (await client.post(RUN, json={"request_id": request_id})).json()["result"]["status"] == "queued"


# The disk is full after: all of the spool's memory, the first writes to the file, all but the last buffered bytes.
@pytest.mark.parametrize("spare", [0, 256 * 1024, 990_000])
async def test_a_disk_too_full_for_the_spool_answers_507_and_stores_nothing(
    settings: Settings, key: str, database_url: str, spare: int
) -> None:
    with small_disk(settings.data_dir / "spool", 2):
        settings = settings.model_copy(update={"spool_memory_mb": 0.1})
        async with api(settings, key) as client:
            before = rows(database_url)
            filler = ballast(settings.data_dir / "spool", spare)
            content = body(1)
            check_full(await client.post(SUBMIT, content=content, headers=NDJSON), "disk for uploads is full")
            assert rows(database_url) == before
            assert [path.name for path in filler.parent.iterdir()] == ["ballast"]
            filler.unlink()
            await check_taken(client, await client.post(SUBMIT, content=content, headers=NDJSON))


async def test_bytes_still_buffered_when_the_body_ends_meet_the_full_disk_before_the_transaction(
    settings: Settings, key: str, database_url: str
) -> None:
    with small_disk(settings.data_dir / "spool", 2):
        settings = settings.model_copy(update={"spool_memory_mb": 0.001})
        async with api(settings, key) as client:
            filler = ballast(settings.data_dir / "spool", 4096)
            line = b'{"prompt":"%b"}\n' % (b"x" * 1000)

            async def content() -> AsyncIterator[bytes]:
                yield line * 2  # fits, and opens the file
                yield line * 4  # stays in the file's buffer, and will not fit

            check_full(await client.post(SUBMIT, content=content(), headers=NDJSON), "disk for uploads is full")
            assert rows(database_url)[0] == (0, 0, 0, 0)
            filler.unlink()
            await check_taken(client, await client.post(SUBMIT, content=content(), headers=NDJSON))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the server's user can enter, which pytest's own is not: each pytest that starts makes that private again."""
    with tempfile.TemporaryDirectory(prefix="slackwater-disk-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def database_on(folder: Path, server: Settings) -> Iterator[str]:
    """A fresh database whose tables lie in this folder; the server's WAL stays where it is."""
    admin = embedded.database_url(server)
    owner = (server.data_dir / "postgres").stat()
    os.chown(folder, owner.st_uid, owner.st_gid)
    name = f"full_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(admin, autocommit=True) as conn:
        conn.execute(f"create tablespace {name} location '{folder}'")
        try:
            conn.execute(f"create database {name} template {TEMPLATE} tablespace {name}")
            yield admin.replace("/postgres?", f"/{name}?")
        finally:
            conn.execute(f"drop database if exists {name} with (force)")
            conn.execute(f"drop tablespace {name}")


async def test_a_database_without_room_answers_507_and_stores_nothing_and_recovers_by_itself(
    settings: Settings, server_settings: Settings, ring: Ring, open_folder: Path
) -> None:
    folder = open_folder / "disk"
    with small_disk(folder, 64), database_on(folder, server_settings) as url:
        settings = settings.model_copy(update={"database_url": url})
        async with Database.of(settings, "test") as database, database.transaction() as conn:
            key = str(await tenants.create_key(conn, secret_key(settings), "acme", "test"))
        async with api(settings, key) as client:
            await check_taken(client, await client.post(SUBMIT, content=body(0.1), headers=NDJSON))
            before = rows(url)
            filler = ballast(folder, 2 * MB)
            content = body(8)
            for _ in range(2):
                check_full(await client.post(SUBMIT, content=content, headers=NDJSON), "database's disk is full")
                assert rows(url) == before
            filler.unlink()
            await check_taken(client, await client.post(SUBMIT, content=content, headers=NDJSON))
            assert rows(url)[0][0] == 2
