"""A new key for an account at the key provider. All data keys are wrapped anew, then the old key is destroyed.

What a backup of the database holds of the old wrapped keys opens nothing from then on. Safe to interrupt and to repeat: `retired`
remembers the old key until it is destroyed. A submit that has seen the old key as the current one has committed before the
rotation begins, or fails and is sent again (`batch_keys.check_current`).
"""

from dataclasses import dataclass

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection, Database
from app.errors import Conflict
from app.files import sql as files_sql
from app.sealing import batch_keys, sql
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.tenants import service as tenants

_SLICE = 500


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did. `rewrapped`: keys of batches, files, uploads and conversations."""

    kek: str
    destroyed: str
    rewrapped: int


async def rotate(database: Database, settings: Settings, account: str) -> Rotation:
    """Give an account a new key. Raises AccountUnknown, Conflict where nothing of it was ever sealed, KeysUnavailable."""
    keyring = Keyring.of(settings)
    async with database.transaction() as conn:
        tenant_id = await tenants.find_tenant(conn, account)
        values = {"tenant_id": tenant_id, "kek": batch_keys.new_name()}
        begun = (await conn.execute(sql.ROTATE, values)).rowcount > 0
        row = await (await conn.execute(sql.ROTATION, values)).fetchone()
        if row is None:
            raise Conflict(f"Nothing of the account {account} is encrypted, so it has no key to rotate")
        kek, retired = row
        if begun:
            record = Record(Act.ACCOUNT_ROTATE_KEK, account, account, before={"key": retired}, after={"key": kek})
            await log.record(conn, record)
    count = 0
    async with database.durable() as conn:
        count += await _batches(conn, keyring, retired, kek)
        for statements in (*files_sql.OLD_KEYS.values(), (sql.OLD_TURN_KEYS, sql.REWRAP_TURN_KEY)):
            count += await _by_owner(conn, keyring, retired, kek, statements)
    await keyring.provider.destroy(retired)
    async with database.transaction() as conn:
        if (await conn.execute(sql.END_ROTATION, {"tenant_id": tenant_id, "retired": retired})).rowcount:
            await log.record(conn, Record(Act.ACCOUNT_KEK_DESTROYED, account, account, before={"key": retired}))
    return Rotation(kek, retired, count)


async def _batches(conn: Connection, keyring: Keyring, retired: str, kek: str) -> int:
    values, count = {"retired": retired, "kek": kek, "limit": _SLICE}, 0
    while rows := await (await conn.execute(sql.OLD_BATCH_KEYS, values)).fetchall():
        for batch_id, wrapped in rows:
            anew = await keyring.rewrapped(wrapped, retired, kek, batch_keys.context(batch_id))
            await conn.execute(sql.REWRAP_BATCH_KEY, values | {"batch_id": batch_id, "wrapped": anew})
        count += len(rows)
    return count


async def _by_owner(conn: Connection, keyring: Keyring, retired: str, kek: str, statements: tuple[str, str]) -> int:
    values, count = {"retired": retired, "kek": kek, "limit": _SLICE}, 0
    old, rewrap = (statement.encode() for statement in statements)
    while rows := await (await conn.execute(old, values)).fetchall():
        for owner, wrapped in rows:
            anew = await keyring.rewrapped(wrapped, retired, kek, owner.bytes)
            await conn.execute(rewrap, values | {"owner": owner, "wrapped": anew})
        count += len(rows)
    return count
