"""Claims about backup and restore: the commands of docs/operate.md are run, and the queue goes on as it was at the moment."""

import asyncio
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app import processes
from app.db import embedded, migrate
from app.db.pool import Database
from app.engines import service as engines
from app.environment import child_environment, foreign_environment
from app.errors import KeysUnavailable
from app.queue import bodies, partitions, service
from app.queue.ingest import NewBatch
from app.queue.types import Item, Lease
from app.sealing import batch_keys, keyring
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from app.tenants import service as tenants
from testing import clusters
from testing.waiting import eventually
from tests.failover.servers import Server
from tests.queue import support
from tests.storage.support import s3_settings
from tests.walking import Block, Shell, blocks

ROOT = Path(__file__).parents[2]
SECRET = "a secret key of more than 32 bytes, for this test"
PROMPT = b'{"prompt": "a sealed one"}'
CHUNK = 3  # items of a chunk
PROGRAMS = ("pg_archivecleanup", "pg_basebackup", "pg_ctl", "psql")


@dataclass
class Site:
    """An installation without parts, on a PostgreSQL of its own, and a shell in which an operator works."""

    settings: Settings
    server: Server
    cluster: Path
    backups: Path
    shell: Shell
    blocks: list[Block]

    def paste(self, word: str, **variables: str) -> str:
        """Run the block of the page that has this word, with these variables."""
        [block] = [block for block in self.blocks if word in block.code]
        for name, value in variables.items():
            self.shell.paste(Block(block.line, "bash", "", f"export {name}={shlex.quote(value)}\n"))
        return self.shell.paste(block)

    async def begin(self) -> None:
        """Let the server archive, and give it a schema."""
        await asyncio.to_thread(self.paste, "archive_mode")
        self.server.kill()
        self.server.start()
        await asyncio.to_thread(migrate.upgrade, self.server.url)

    async def back_up(self, **variables: str) -> Path:
        """What is done every day. Returns the new backup."""
        await asyncio.to_thread(self.paste, "pg_basebackup", **variables)
        return max(self.kept())

    def kept(self) -> list[Path]:
        """The backups that there are."""
        return list(self.backups.glob("2*Z"))

    async def restore(self, backup: Path, moment: str) -> str:
        """Restore the database to this moment, from the backup, and what is lost beside it. Returns what `slackwater restored`
        printed.
        """
        given = {"BACKUP": str(backup), "MOMENT": moment, "PGDATA": str(self.cluster)}
        await asyncio.to_thread(self.paste, "recovery_target_time", **given)
        await asyncio.to_thread(self.paste, "put_back")
        return await asyncio.to_thread(self.paste, "slackwater restored")


@pytest.fixture
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The settings of an object store: a folder of the data directory, or S3 where a test's parameter says so."""
    if getattr(request, "param", "folder") == "folder":
        return {}
    made = s3_settings(request, monkeypatch, tmp_path)
    return {"storage_url": made.storage_url, "storage_endpoint": made.storage_endpoint}


@pytest.fixture
async def site(storage: dict[str, Any]) -> AsyncIterator[Site]:
    with clusters.folder() as folder:
        cluster, backups = folder / "data", folder / "backups"
        server = Server(cluster, "127.0.0.1", processes.free_port())
        server.initialise()
        with (cluster / "postgresql.conf").open("a") as conf:  # a restored server has it, too
            conf.write(f"port = {server.port}\nunix_socket_directories = ''\n")
        server.start()
        settings = Settings(
            data_dir=folder / "home",
            database_url=server.url,
            secret_key="",
            object_grace_days=7,
            **storage,
        )
        settings.data_dir.mkdir()
        (settings.data_dir / "secret_key").write_text(SECRET)
        page = (
            (ROOT / "docs" / "operate.md").read_text().partition("## Back up and restore")[2].partition("\n## Logs")[0]
        )
        environment = {
            **foreign_environment(),
            **child_environment(settings, {}),
            "PATH": os.pathsep.join([str(_programs(folder)), f"{sys.prefix}/bin", os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "BACKUPS": str(backups),
        }
        try:
            with Shell(folder, environment) as shell:
                yield Site(settings, server, cluster, backups, shell, blocks(_without_indents(page)))
        finally:
            server.close()  # it ends whatever server runs in its folder


def _without_indents(page: str) -> str:
    """The page with the blocks of numbered steps at the margin."""
    return "\n".join(line.removeprefix("   ") for line in page.split("\n"))


def _programs(folder: Path) -> Path:
    """A folder of PostgreSQL's programs. Root's run as the server's user, to whom all files of server and backups belong."""
    wheel = embedded._wheel()
    real, owner = embedded._programs(wheel), embedded._owner(wheel)
    found = folder / "programs"
    found.mkdir()
    for name in PROGRAMS:
        command = f'exec {real / name} "$@"'
        if os.geteuid() == 0:
            own = f'mkdir -p "$BACKUPS"; chown -R {owner.pw_uid} "$BACKUPS" $PGDATA'
            command = f'{own}; exec setpriv --reuid {owner.pw_uid} --regid {owner.pw_gid} --clear-groups -- {real / name} "$@"'
        (found / name).write_text(f"#!/bin/sh\n{command}\n")
        (found / name).chmod(0o755)
    return found


@dataclass
class Queue:
    """What a test does with the database, whichever server answers."""

    database: Database
    settings: Settings
    tenant: int
    pool: int

    @property
    def store(self) -> Store:
        """The object store."""
        return Store.of(self.settings)

    async def one(self, query: str, *values: object) -> object:
        """The first value of the first row."""
        async with self.database.durable() as conn:
            row = await (await conn.execute(query.encode(), values)).fetchone()
        return row and row[0]

    async def submit(self) -> NewBatch:
        """A batch of two chunks, whose bodies are objects."""
        batch = await support.submit(self.database, self.tenant, self.pool, 2 * CHUNK, max_items=CHUNK)
        for seq in range(batch.total):
            await self._replace(batch, seq, b"{}", stored=True)
        return batch

    async def submit_sealed(self) -> NewBatch:
        """A batch of two items whose bodies are sealed: one is in its row, one is an object."""
        batch = await support.submit(self.database, self.tenant, self.pool, 2)
        seal, key = await bodies.new_seal(self.database, Keyring.of(self.settings), self.tenant, batch.batch_id)
        async with self.database.transaction() as conn:
            await batch_keys.add(conn, batch.batch_id, key)
        for seq in range(batch.total):
            await self._replace(batch, seq, seal.payload(seq, PROMPT), stored=seq == 1)
        return batch

    def objects(self, batch: NewBatch) -> list[str]:
        """The keys of the bodies of a batch."""
        return [object_names.payload(batch.batch_id, seq) for seq in range(batch.total)]

    async def _replace(self, batch: NewBatch, seq: int, body: bytes, *, stored: bool) -> None:
        if stored:
            key = object_names.payload(batch.batch_id, seq)
            await self.store.put(key, body)
            body = key.encode()
        async with self.database.durable() as conn:
            await conn.execute(
                "update item_payload set stored = %s, body = %s where (batch_id, seq) = (%s, %s)",
                (stored, body, batch.batch_id, seq),
            )

    async def claim(self) -> tuple[Lease, list[Item]]:
        """A chunk that a new worker holds, and its items."""
        worker = await support.make_worker(self.database, self.pool)
        async with self.database.durable() as conn:
            [lease] = await service.claim(conn, self.pool, worker)
            assert lease
            return lease, await service.load(conn, lease)

    async def read(self, batch: NewBatch, items: list[Item]) -> list[bytes]:
        """The bodies of these items of a sealed batch, as a worker reads them. Raises KeysUnavailable."""
        opened, seal = await bodies.opened(Keyring.of(self.settings), batch.batch_id, items)
        assert seal
        return [
            seal.open_payload(item.seq, await self.store.get(item.body.decode())) if item.stored else item.body
            for item in opened
        ]

    async def flush(self, lease: Lease, items: Sequence[Item]) -> bool:
        """Store results of these items. False: the lease is lost."""
        async with self.database.durable() as conn:
            return await service.flush(conn, lease, support.answers(items))

    async def results(self, batch: NewBatch) -> object:
        """How many results a batch has."""
        return await self.one("select count(*) from item_result where batch_id = %s", batch.batch_id)

    async def moment(self) -> str:
        """The server's time."""
        return str(await self.one("select clock_timestamp()"))


@asynccontextmanager
async def opened(site: Site) -> AsyncIterator[Queue]:
    """The database, under a name that no part of Slackwater has, with an account and a pool."""
    async with Database(site.server.url, size=2, application="a test") as database:
        async with database.transaction() as conn:
            await partitions.create(conn, 2)
            tenant, pool = await tenants.ensure_tenant(conn, "acme"), await engines.ensure_pool(conn, "toy")
        yield Queue(database, site.settings, tenant, pool)


async def until_archived(site: Site, queue: Queue) -> None:
    """Wait until all that was written is in the archive."""
    newest = await queue.one("select pg_walfile_name(pg_current_wal_lsn())")
    await queue.one("select pg_switch_wal()")
    await eventually((site.backups / "wal" / str(newest)).exists)


@pytest.mark.parametrize("storage", ["folder", pytest.param("s3", marks=pytest.mark.slow)], indirect=True)
async def test_a_database_that_is_restored_to_a_moment_by_the_commands_of_the_page_goes_on_from_there(
    site: Site,
) -> None:
    await site.begin()
    async with opened(site) as queue:
        kept = await queue.submit()
        await until_archived(site, queue)
        await site.back_up()
        first_log = min((site.backups / "wal").iterdir())
        stray, items = await queue.claim()
        assert await queue.flush(stray, items[:1])
        second = int(time.time())  # the names of backups are seconds
        await eventually(lambda: int(time.time()) > second)
        backup = await site.back_up(KEPT="1")
        assert (site.kept(), first_log.exists()) == ([backup], False)
        uncopied = await queue.submit()
        moment = await queue.moment()
        assert await queue.flush(stray, items[1:])
        late, late_items = await queue.claim()  # a worker and a lease that the restored database does not know
        lost = await queue.submit()
        await until_archived(site, queue)
    site.server.kill()
    await queue.store.delete(queue.objects(uncopied))
    shutil.rmtree(site.settings.data_dir)
    said = await site.restore(backup, moment)
    assert (site.settings.data_dir / "secret_key").read_text() == SECRET
    assert [await queue.store.get(key) for key in queue.objects(kept)] == [b"{}"] * kept.total
    assert "1 worker removed, 1 chunk back in the queue" in said
    assert re.findall(r"^batch\t(\S+)\t(\d+)$", said, re.MULTILINE) == [(str(uncopied.request_id), str(uncopied.total))]
    async with opened(site) as queue:
        assert await queue.one("select count(*) from batch where request_id = %s", lost.request_id) == 0
        assert await queue.results(kept) == 1
        assert not await queue.flush(stray, items)
        assert not await queue.flush(late, late_items)
        again = await queue.submit()
        assert again.batch_id not in (lost.batch_id, uncopied.batch_id, kept.batch_id)
        await support.drain(queue.database, queue.pool, await support.make_worker(queue.database, queue.pool))
        ended = [str(each.request_id) for each in await support.settle(queue.database)]
        assert sorted(ended) == sorted(str(batch.request_id) for batch in (kept, uncopied, again))
        assert [await queue.results(batch) for batch in (kept, uncopied, again)] == [2 * CHUNK] * 3


async def test_sealed_bodies_of_a_restored_database_are_read_with_the_keys_of_the_backup_and_not_without(
    site: Site,
) -> None:
    await site.begin()
    async with opened(site) as queue:
        await queue.submit_sealed()  # the account has a key before the keys are copied
        backup = await site.back_up()
        await queue.claim()
        kept = await queue.submit_sealed()
        moment = await queue.moment()
        await queue.submit()
        await until_archived(site, queue)
    site.server.kill()
    assert "The object store has every object." in await site.restore(backup, moment)
    shutil.rmtree(site.settings.data_dir / "keys")
    keyring.forget_cached()
    async with opened(site) as queue:
        claimed = [await queue.claim(), await queue.claim()]
        [items] = [items for lease, items in claimed if lease.batch_id == kept.batch_id]
        with pytest.raises(KeysUnavailable):
            await queue.read(kept, items)
        await asyncio.to_thread(site.paste, "put_back")
        assert await queue.read(kept, items) == [PROMPT, PROMPT]


async def test_a_backup_fails_where_a_folder_is_missing_and_says_what_is_kept_elsewhere(site: Site) -> None:
    site.paste("archive_mode")
    with pytest.raises(AssertionError, match="/nowhere"):
        site.paste("pg_basebackup", SLACKWATER_STORAGE_URL="file:///nowhere")
    assert not site.kept()
    elsewhere = {"SLACKWATER_STORAGE_URL": "s3://a-bucket", "SLACKWATER_SECRET_KEY": "another secret key"}
    assert "not copied: objects in s3://a-bucket" in site.paste("pg_basebackup", **elsewhere)
    [backup] = site.kept()
    assert (backup / "secret_key").read_text() == "another secret key"
