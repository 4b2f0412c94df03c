"""Claims about backup and restore: the commands of docs/operate.md are run, and the queue goes on as it was at the moment."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app import processes
from app.db import embedded, migrate
from app.db.pool import Database
from app.environment import child_environment, foreign_environment
from app.queue import partitions, service
from app.queue.ingest import NewBatch
from app.queue.types import Item, Lease
from app.settings import Settings
from app.storage import object_names
from app.storage.store import Store
from testing import clusters
from tests.failover.servers import Server
from tests.queue import support
from tests.walking import Block, Shell, blocks

ROOT = Path(__file__).parents[2]
SECRET = "a secret key of more than 32 bytes, for this test"
CHUNK = 3  # items of a chunk
PROGRAMS = ("pg_basebackup", "pg_ctl", "psql")


@dataclass
class Site:
    """An installation without parts, on a PostgreSQL of its own, and a shell in which an operator works."""

    settings: Settings
    server: Server
    backups: Path
    restored: Path  # the cluster that is restored
    shell: Shell
    blocks: list[Block]

    def paste(self, word: str, **variables: str) -> str:
        """Run the block of the page that has this word, with these variables."""
        [block] = [block for block in self.blocks if word in block.code]
        for name, value in variables.items():
            self.shell.paste(Block(block.line, "bash", "", f"export {name}={shlex.quote(value)}\n"))
        return self.shell.paste(block)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    with clusters.folder() as folder:
        server = Server(folder / "data", "127.0.0.1", processes.free_port())
        server.initialise()
        with (folder / "data" / "postgresql.conf").open("a") as conf:  # a restored server has it, too
            conf.write(f"port = {server.port}\nunix_socket_directories = ''\n")
        server.start()
        backups, restored = folder / "backups", folder / "restored"
        settings = Settings(
            data_dir=folder / "home",
            database_url=server.url,
            secret_key="",
            storage_url=(folder / "objects").as_uri(),
            object_grace_days=7,
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
                yield Site(settings, server, backups, restored, shell, blocks(_without_indents(page)))
        finally:
            _stop(restored)
            server.close()


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


def _stop(data: Path) -> None:
    """End a server that the shell has started."""
    if (data / "postmaster.pid").exists():
        processes.kill([int((data / "postmaster.pid").read_text().split()[0])])


@dataclass
class Queue:
    """What the test does with the database, whichever server answers."""

    database: Database
    store: Store
    tenant: int
    pool: int

    async def one(self, query: str, *values: object) -> object:
        """The first value of the first row."""
        async with self.database.durable() as conn:
            row = await (await conn.execute(query.encode(), values)).fetchone()
        return row and row[0]

    async def submit(self) -> NewBatch:
        """A batch of two chunks, whose bodies are objects."""
        batch = await support.submit(self.database, self.tenant, self.pool, 2 * CHUNK, max_items=CHUNK)
        async with self.database.durable() as conn:
            for seq in range(batch.total):
                key = object_names.payload(batch.batch_id, seq)
                await self.store.put(key, b"{}")
                values = (key.encode(), batch.batch_id, seq)
                await conn.execute(
                    "update item_payload set stored = true, body = %s where (batch_id, seq) = (%s, %s)", values
                )
        return batch

    async def claim(self) -> tuple[Lease, list[Item]]:
        """A chunk that a new worker holds, and its items."""
        worker = await support.make_worker(self.database, self.pool)
        async with self.database.durable() as conn:
            [lease] = await service.claim(conn, self.pool, worker)
            assert lease
            return lease, await service.load(conn, lease)

    async def flush(self, lease: Lease, items: Sequence[Item]) -> bool:
        """Store results of these items. False: the lease is lost."""
        async with self.database.durable() as conn:
            return await service.flush(conn, lease, support.answers(items))

    async def results(self, batch: NewBatch) -> object:
        """How many results a batch has."""
        return await self.one("select count(*) from item_result where batch_id = %s", batch.batch_id)


@asynccontextmanager
async def opened(site: Site) -> AsyncIterator[Database]:
    """The database, under a name that no part of Slackwater has."""
    async with Database(site.server.url, size=2, application="a test") as database:
        yield database


async def until_archived(site: Site, queue: Queue) -> None:
    """Wait until all that was written is in the archive."""
    newest = await queue.one("select pg_walfile_name(pg_current_wal_lsn())")
    await queue.one("select pg_switch_wal()")
    async with asyncio.timeout(60):
        while not (site.backups / "wal" / str(newest)).exists():
            await asyncio.sleep(0.1)


async def test_a_database_that_is_restored_to_a_moment_by_the_commands_of_the_page_goes_on_from_there(
    site: Site,
) -> None:
    await asyncio.to_thread(site.paste, "archive_mode")
    site.server.kill()
    site.server.start()
    await asyncio.to_thread(migrate.upgrade, site.server.url)
    async with opened(site) as database:
        async with database.transaction() as conn:
            await partitions.create(conn, 2)
            tenant, pool = await support.make_tenant(conn), await support.make_pool(conn)
        await asyncio.to_thread(site.paste, "pg_basebackup")
        queue = Queue(database, Store.of(site.settings), tenant, pool)
        kept = await queue.submit()
        stray, items = await queue.claim()
        assert await queue.flush(stray, items[:1])
        moment = str(await queue.one("select clock_timestamp()"))
        assert await queue.flush(stray, items[1:])
        late, late_items = await queue.claim()  # a worker and a lease that the restored database does not know
        lost = await queue.submit()
        await until_archived(site, queue)
    site.server.kill()
    assert (site.backups / "secret_key").read_text() == SECRET
    await queue.store.delete([object_names.payload(kept.batch_id, 0)])
    await asyncio.to_thread(site.paste, "recovery_target_time", MOMENT=moment, PGDATA=str(site.restored))
    said = await asyncio.to_thread(site.paste, "slackwater restored")
    assert "1 worker removed, 1 chunk back in the queue" in said
    assert re.search(rf"^batch\t{kept.request_id}\t1$", said, re.MULTILINE), said
    async with opened(site) as database:
        queue = Queue(database, queue.store, tenant, pool)
        assert await queue.one("select count(*) from batch where request_id = %s", lost.request_id) == 0
        assert await queue.results(kept) == 1
        assert not await queue.flush(stray, items)
        assert not await queue.flush(late, late_items)
        again = await queue.submit()
        assert again.batch_id not in (lost.batch_id, kept.batch_id)
        await support.drain(database, pool, await support.make_worker(database, pool))
        ended = [str(each.request_id) for each in await support.settle(database)]
        assert sorted(ended) == sorted(map(str, (kept.request_id, again.request_id)))
        assert [await queue.results(batch) for batch in (kept, again)] == [2 * CHUNK] * 2
