"""`slackwater shred --verify`: shows on the raw files of a database of its own what the deletion of a batch removes, and when.

It makes an embedded database in a temporary folder, with a sealed batch and one in the clear that hold the same sentence, deletes
both, and looks for the sentence and for the wrapped key in every file after each step. The installation is not touched.
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

import orjson
import typer

from app.batches import key_rotation, lifecycle, shredding, submit
from app.cli import tables
from app.cli.options import Json, console
from app.db import embedded, migrate
from app.db.pool import Database
from app.engines import catalogue
from app.engines.service import ensure_pool
from app.errors import KeysUnavailable
from app.queue import partitions, reads, service
from app.queue.bodies import StoredBodies
from app.queue.types import Result
from app.sealing import batch_keys
from app.sealing.keyring import Keyring, WrappedKey, forget_cached
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from app.user_errors import explained

_COLUMNS = ("step", "sealed text", "clear text", "clear text in WAL", "wrapped key", "wrapped key opens")
_ACCOUNT = "verify"


@dataclass(frozen=True, slots=True)
class Seen:
    """In how many files each of the things was after a step, and whether the wrapped key, as a backup has it, opens."""

    step: str
    sealed: int
    clear: int
    clear_in_wal: int
    key: int
    opens: bool


def shred(
    verify: Annotated[bool, typer.Option("--verify", help="show it on a database of its own")] = False,
    as_json: Json = False,
) -> None:
    """Show on raw files what the deletion of a batch's contents removes. `slackwater batch rm` deletes those of a batch."""
    if not verify:
        raise typer.BadParameter("choose --verify; `slackwater batch rm ID` deletes the contents of a batch")
    with explained(), tempfile.TemporaryDirectory(prefix="slackwater-shred-") as made:
        Path(made).chmod(0o755)
        settings = Settings(
            data_dir=Path(made), database_url="", encrypt="off", key_provider="", storage_url="", object_kb=0
        )
        steps = asyncio.run(_run(settings))
    if as_json:
        tables.document(console, [asdict(seen) for seen in steps])
    else:
        rows = [(s.step, s.sealed, s.clear, s.clear_in_wal, s.key, "yes" if s.opens else "no") for s in steps]
        tables.show(console, _COLUMNS, rows, whole=("step",), numbers=_COLUMNS[1:5])
    if problems := _problems(steps):
        tables.sentence(console, f"Not as promised: {problems[0]}.")
        raise typer.Exit(1)


def _problems(steps: list[Seen]) -> list[str]:
    stored, last = steps[0], steps[-1]
    found = []
    if not stored.clear:
        found.append("the text in the clear was not found where it must be, so this run shows nothing")
    if any(seen.sealed for seen in steps):
        found.append("the text of the sealed batch was found")
    if last.clear:
        found.append("the text of the deleted batch is still on a page of a table")
    if last.opens:
        found.append("the wrapped key of a backup still opens")
    return found


async def _run(settings: Settings) -> list[Seen]:
    sealed_text, clear_text = f"sealed {secrets.token_hex(16)}", f"clear {secrets.token_hex(16)}"
    async with _database(settings) as (database, folder, tenant):
        sealed = await _stored(database, settings.model_copy(update={"encrypt": "on"}), tenant, sealed_text)
        clear = await _stored(database, settings, tenant, clear_text)
        status = await reads.status(database, tenant.tenant_id, sealed)
        assert status is not None
        batch_id = status.batch_id
        async with database.durable() as conn:
            wrapped = await batch_keys.read(conn, batch_id)
        assert wrapped is not None

        async def look(step: str) -> Seen:
            async with database.durable() as conn:
                await conn.execute("checkpoint")
            texts = [sealed_text.encode(), clear_text.encode(), wrapped.wrapped]
            pages, wal = await asyncio.to_thread(_found, folder, texts)
            return Seen(step, pages[0] + wal[0], pages[1], wal[1], pages[2], await _opens(settings, batch_id, wrapped))

        steps = [await look("stored")]
        for request_id in (sealed, clear):
            await shredding.shred(database, settings, tenant, request_id)
        steps.append(await look("deleted"))
        async with database.durable() as conn:
            await conn.execute("vacuum")
        steps.append(await look("vacuumed"))
        await key_rotation.rotate(database, settings, _ACCOUNT)
        return [*steps, await look("key rotated")]


@asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[tuple[Database, Path, Tenant]]:
    """A migrated embedded server with an account. It is stopped at the end."""
    url = await asyncio.to_thread(embedded.start, settings)
    try:
        await asyncio.to_thread(migrate.upgrade, url)
        async with Database(url, size=2) as database:
            async with database.transaction() as conn:
                await partitions.create(conn, days_ahead=1)
                tenant = Tenant(await tenants.ensure_tenant(conn, _ACCOUNT), _ACCOUNT)
            async with database.durable() as conn:
                [(folder,)] = await (await conn.execute("show data_directory")).fetchall()
            yield database, Path(folder), tenant
    finally:
        await asyncio.to_thread(embedded.stop, settings, "immediate")


async def _stored(database: Database, settings: Settings, tenant: Tenant, text: str) -> UUID:
    """A final batch of one item, whose prompt and answer hold the text."""
    model = next(iter(catalogue.load(settings.models_file).models.values()))
    request_id = await submit.submit_items(database, settings, submit.Order(tenant, model), [{"prompt": text}])
    async with database.durable() as conn:
        pool_id = await ensure_pool(conn, model.served)
        worker_id = await service.register_worker(
            conn, pool_id=pool_id, host="verify", pid=os.getpid(), lease_seconds=60
        )
        lease = await service.claim(conn, pool_id, worker_id)
        assert lease is not None
        body = orjson.dumps({"answer": text})
        if settings.encrypt == "on":
            seal = await StoredBodies(conn, Keyring.of(settings), lease.batch_id).seal()
            body = seal.result(0, lease.run, body)
        await service.flush(conn, lease, [Result(0, True, 1, 1, 0, 1, body)])
        await service.finish(conn, lease)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    return request_id


async def _opens(settings: Settings, batch_id: int, wrapped: WrappedKey) -> bool:
    forget_cached()
    try:
        await Keyring.of(settings).open(wrapped, batch_keys.context(batch_id))
    except KeysUnavailable:
        return False
    return True


def _found(folder: Path, texts: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """In how many files of the database each text is: outside of the write-ahead log, and in it."""
    pages, wal = [0] * len(texts), [0] * len(texts)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content, counts = path.read_bytes(), wal if "pg_wal" in path.parts else pages
            for number, text in enumerate(texts):
                counts[number] += text in content
    return pages, wal
