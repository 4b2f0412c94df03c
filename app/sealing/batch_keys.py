"""The keys of accounts and batches, as rows."""

import secrets
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.db.pool import Connection, Database
from app.errors import KeysUnavailable
from app.sealing import sql
from app.sealing.keyring import Keyring, WrappedKey


@dataclass(frozen=True, slots=True)
class NewKey:
    """A data key of an account that is not stored yet. `only_vaults`: the bodies of its batch stay in the clear."""

    tenant_id: int
    cipher: AESGCM
    wrapped: WrappedKey
    only_vaults: bool = False


def new_name() -> str:
    """A name for a key at the provider."""
    return f"slackwater-{secrets.token_hex(8)}"


def context(batch_id: int) -> bytes:
    """What the data key of a batch is bound to."""
    return b"batch %d" % batch_id


async def make(database: Database, keyring: Keyring, tenant_id: int, of: bytes) -> NewKey:
    """A data key under the account's key. Raises KeysUnavailable."""
    return NewKey(tenant_id, *await keyring.make(await _kek(database, tenant_id), of))


async def wrap_for_vaults(database: Database, keyring: Keyring, tenant_id: int, batch_id: int, key: bytes) -> NewKey:
    """A data key that has sealed the vaults of a new batch, under the account's key. Raises KeysUnavailable."""
    wrapped = await keyring.wrap(await _kek(database, tenant_id), key, context(batch_id))
    return NewKey(tenant_id, AESGCM(key), wrapped, only_vaults=True)


async def _kek(database: Database, tenant_id: int) -> str:
    """The name of the account's key. A new account gets one."""
    async with database.durable() as conn:
        values = {"tenant_id": tenant_id, "kek": new_name()}
        row = await (await conn.execute(sql.KEK, values)).fetchone()
        if row is None:
            await conn.execute(sql.ADD_KEK, values)
            row = await (await conn.execute(sql.KEK, values)).fetchone()
    assert row is not None
    return str(row[0])


async def check_current(conn: Connection, key: NewKey) -> None:
    """Call in the transaction that stores the key. Raises KeysUnavailable where a rotation began since it was made."""
    values = {"tenant_id": key.tenant_id, "kek": key.wrapped.kek}
    if await (await conn.execute(sql.IS_CURRENT, values)).fetchone() is None:
        raise KeysUnavailable("The account's key was rotated while the request arrived; send it again")


async def add(conn: Connection, batch_id: int, key: NewKey) -> None:
    """Store the key of a new batch. Call in the transaction of its submit. Raises KeysUnavailable."""
    await check_current(conn, key)
    values = {"batch_id": batch_id, "kek": key.wrapped.kek, "wrapped": key.wrapped.wrapped}
    await conn.execute(sql.ADD_BATCH_KEY, values | {"only_vaults": key.only_vaults})


async def read(conn: Connection, batch_id: int) -> WrappedKey | None:
    """The wrapped key of a batch. None: it has none, or it was destroyed."""
    row = await (await conn.execute(sql.BATCH_KEY, {"batch_id": batch_id})).fetchone()
    return None if row is None else WrappedKey(*row)


async def seals_bodies(conn: Connection, batch_id: int) -> bool:
    """Whether the batch has a key that seals its bodies."""
    row = await (await conn.execute(sql.SEALS_BODIES, {"batch_id": batch_id})).fetchone()
    return bool(row and row[0])


async def forget(conn: Connection, batch_id: int) -> None:
    """Destroy the key of a batch."""
    await conn.execute(sql.FORGET_BATCH_KEY, {"batch_id": batch_id})


async def note_failure(conn: Connection, batch_id: int, failure: str) -> None:
    """Note why a worker could not unwrap the key of a batch."""
    await conn.execute(sql.NOTE_FAILURE, {"batch_id": batch_id, "failure": failure})


async def failure(conn: Connection, batch_id: int) -> tuple[str, datetime] | None:
    """Why workers could not unwrap the key of a batch within the last minute, and when. None: they could, or did not try."""
    row = await (await conn.execute(sql.FAILURE, {"batch_id": batch_id})).fetchone()
    return None if row is None else (row[0], row[1])


async def destroy_kek(database: Database, keyring: Keyring, tenant_id: int) -> None:
    """Destroy the key of an account at the provider, if it has one. Its row goes with the account. Raises KeysUnavailable."""
    async with database.relaxed() as conn:
        row = await (await conn.execute(sql.ROTATION, {"tenant_id": tenant_id})).fetchone()
    for kek in row or ():
        if kek is not None:
            await keyring.provider.destroy(kek)
