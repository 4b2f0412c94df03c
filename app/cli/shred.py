"""`slackwater shred --verify`: shows on the raw files of a database of its own what the deletion of a batch removes, and when.

It makes an embedded database in a temporary folder, with a sealed batch and one in the clear, whose prompts have a value that is
replaced by a placeholder. It deletes both, and looks for the texts, the value and the wrapped keys in every file after each step.
The installation is not touched.
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated
from uuid import UUID

import orjson
import typer

from app.admission.admission import no_admission
from app.admission.redaction import redaction_of
from app.batches import key_rotation, lifecycle, shredding, submit
from app.cli import tables
from app.cli.options import Json, console
from app.crypto import secret_key
from app.db import embedded, migrate
from app.db.pool import Database
from app.engines import catalogue
from app.engines.service import ensure_pool
from app.errors import KeysUnavailable
from app.policy.rules import Policy, Rule, Sensitive, When
from app.policy.vaults import Vaults, hash_key, of_item
from app.queue import partitions, reads, service
from app.queue.bodies import BatchSeal, StoredBodies
from app.queue.types import Result
from app.sealing import batch_keys
from app.sealing.keyring import Keyring, WrappedKey, forget_cached
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from app.user_errors import explained

_COLUMNS = ("step", "sealed text", "clear text", "clear text in WAL", "tokenized value", "wrapped keys", "backup opens")
_ACCOUNT = "verify"
_RULE = Rule("verify", When({}, {}), sensitive=Sensitive("off", {"email": "tokenize"}, {}))


@dataclass(frozen=True, slots=True)
class Seen:
    """In how many files each of the things was after a step, and whether a backup of the first step, with the secret key and the
    keys that the key provider has now, opens the batch that was sealed (`opens`) or the vault of one of the two (`value_opens`).
    """

    step: str
    sealed: int
    clear: int
    clear_in_wal: int
    value: int
    key: int
    opens: bool
    value_opens: bool


@dataclass(frozen=True, slots=True)
class Backup:
    """What a backup has of a batch: its wrapped key, and the vault of its item."""

    batch_id: int
    key: WrappedKey
    vault: bytes


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
            data_dir=Path(made),
            database_url="",
            encrypt="off",
            key_provider=f"file://{made}/keys",
            storage_url="",
            object_kb=0,
        )
        steps = asyncio.run(_run(settings))
    if as_json:
        tables.document(console, [asdict(seen) for seen in steps])
    else:
        rows = [(s.step, s.sealed, s.clear, s.clear_in_wal, s.value, s.key, _opened(s)) for s in steps]
        tables.show(console, _COLUMNS, rows, whole=("step",), numbers=_COLUMNS[1:6])
    if problems := _problems(steps):
        tables.sentence(console, f"Not as promised: {problems[0]}.")
        raise typer.Exit(1)


def _opened(seen: Seen) -> str:
    return {(True, True): "text, value", (True, False): "text", (False, True): "value"}.get(
        (seen.opens, seen.value_opens), "nothing"
    )


def _problems(steps: list[Seen]) -> list[str]:
    stored, last = steps[0], steps[-1]
    found = []
    if not stored.clear:
        found.append("the text in the clear was not found where it must be, so this run shows nothing")
    if not (stored.opens and stored.value_opens):
        found.append("the backup of the first step does not open, so this run shows nothing")
    if any(seen.sealed for seen in steps):
        found.append("the text of the sealed batch was found")
    if any(seen.value for seen in steps):
        found.append("the value behind a placeholder was found")
    if last.clear:
        found.append("the text of the deleted batch is still on a page of a table")
    if last.opens:
        found.append("the wrapped key of a backup still opens")
    if last.value_opens:
        found.append("the value behind a placeholder still opens in a backup")
    return found


async def _run(settings: Settings) -> list[Seen]:
    sealed_text, clear_text, value = (secrets.token_hex(16) for _ in range(3))
    value = f"{value}@verify.example"
    async with _database(settings) as (database, folder, tenant):
        encrypting = settings.model_copy(update={"encrypt": "on"})
        sealed = await _stored(database, encrypting, tenant, sealed_text, value)
        clear = await _stored(database, settings, tenant, clear_text, value)
        backups = [await _backup(database, tenant, request_id) for request_id in (sealed, clear)]

        async def look(step: str) -> Seen:
            async with database.durable() as conn:
                await conn.execute("checkpoint")
            texts = [text.encode() for text in (sealed_text, clear_text, value)]
            pages, wal = await asyncio.to_thread(_found, folder, [*texts, *(backup.key.wrapped for backup in backups)])
            opened = [await _values(settings, tenant, backup) for backup in backups]
            return Seen(
                step,
                sealed=pages[0] + wal[0],
                clear=pages[1],
                clear_in_wal=wal[1],
                value=pages[2] + wal[2],
                key=sum(pages[3:]),
                opens=opened[0] is not None,
                value_opens=any(value in (found or {}).values() for found in opened),
            )

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


async def _stored(database: Database, settings: Settings, tenant: Tenant, text: str, value: str) -> UUID:
    """A final batch of one item, whose prompt and answer hold the text. Its prompt has the value, too, which is tokenized."""
    model = next(iter(catalogue.load(settings.models_file).models.values()))
    secret = secret_key(settings)
    vaults = Vaults(secret, tenant.tenant_id)
    redaction = redaction_of(_RULE, vaults, hash_key(secret), id)
    order = submit.Order(
        tenant, model, admission=replace(no_admission(), policy=Policy(1, (_RULE,)), redaction=redaction, vaults=vaults)
    )
    request_id = await submit.submit_items(database, settings, order, [{"prompt": f"{text} {value}"}])
    async with database.durable() as conn:
        pool_id = await ensure_pool(conn, model.served)
        worker_id = await service.register_worker(
            conn, pool_id=pool_id, host="verify", pid=os.getpid(), lease_seconds=60
        )
        [lease] = await service.claim(conn, pool_id, worker_id)
        body = orjson.dumps({"answer": text})
        if settings.encrypt == "on":
            seal = await StoredBodies(conn, Keyring.of(settings), lease.batch_id).seal()
            body = seal.result(0, lease.run, body)
        await service.flush(conn, lease, [Result(0, True, 1, 1, 0, 1, body)])
        await service.finish(conn, lease)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    return request_id


async def _backup(database: Database, tenant: Tenant, request_id: UUID) -> Backup:
    status = await reads.status(database, tenant.tenant_id, request_id)
    assert status is not None
    async with database.durable() as conn:
        wrapped = await batch_keys.read(conn, status.batch_id)
    [[item]] = [page async for page in reads.results(database, status.batch_id, status.run)]
    assert wrapped is not None
    assert item.vault is not None
    return Backup(status.batch_id, wrapped, bytes(item.vault))


async def _values(settings: Settings, tenant: Tenant, backup: Backup) -> Mapping[str, str] | None:
    """The values in the vault of a backup, opened with all keys that exist now. None: its wrapped key does not open."""
    forget_cached()
    vaults, place = Vaults(secret_key(settings), tenant.tenant_id), of_item(backup.batch_id, 0)
    try:
        cipher = await Keyring.of(settings).open(backup.key, batch_keys.context(backup.batch_id))
    except KeysUnavailable:
        return vaults.opened(backup.vault, place) or None
    return vaults.opened(BatchSeal(backup.batch_id, cipher).open_vault(0, backup.vault), place)


def _found(folder: Path, texts: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """In how many files of the database each text is: outside of the write-ahead log, and in it."""
    pages, wal = [0] * len(texts), [0] * len(texts)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content, counts = path.read_bytes(), wal if "pg_wal" in path.parts else pages
            for number, text in enumerate(texts):
                counts[number] += text in content
    return pages, wal
