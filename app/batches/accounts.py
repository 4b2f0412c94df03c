"""Accounts: list them with their contents, and delete one.

`close` takes effect at once: keys are revoked, webhooks disabled. Maintenance workers repeat `sweep`, which cancels the batches,
waits for items that an engine still runs, and removes the account's data in slices. It may be killed between any two steps.
"""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import structlog
from psycopg.errors import ForeignKeyViolation

from app.batches import account_sql as queries
from app.batches import lifecycle
from app.budgets import service as budgets
from app.db.pool import Connection, Database
from app.errors import AccountUnknown, Conflict, NotFound
from app.files import service as files
from app.metering import ledger
from app.queue import removal, stages
from app.sealing import batch_keys
from app.sealing.keyring import Keyring
from app.states import TenantState
from app.storage.store import Store
from app.tenants import service as tenants
from app.tenants.service import Tenant
from app.webhooks import account_removal

_SLICE = 100

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Account:
    """An account with the counts of its contents. `keys`: valid ones; `open_batches`: those of `batches` that are not final."""

    tenant_id: int
    account_id: str
    state: TenantState
    created_at: datetime
    weight: float
    max_inflight_tokens: int
    retention_days: int | None
    webhook_hosts: list[str] | None
    keys: int
    webhooks: int
    files: int
    batches: int
    open_batches: int


async def listing(conn: Connection) -> list[Account]:
    """Every account by name, including those that are being deleted."""
    return await _read(conn, None)


async def show(conn: Connection, account_id: str) -> Account:
    """One account. Raises AccountUnknown."""
    accounts = await _read(conn, account_id)
    if not accounts:
        raise AccountUnknown(f"There is no account {account_id}")
    return accounts[0]


async def close(conn: Connection, account_id: str) -> None:
    """Begin to delete an account. A repeated call has no effect. Call inside a transaction. Raises AccountUnknown."""
    account = await show(conn, account_id)
    await tenants.close(conn, account.tenant_id)
    await account_removal.disable_all(conn, account.tenant_id)


async def sweep(database: Database, store: Store, keyring: Keyring | None = None) -> list[str]:
    """Continue to delete every closed account. Returns those that are now deleted. Raises StorageError; once it is through,
    ForeignKeyViolation if rows of an account are left that something refers to.

    With `keyring`, an account's key is destroyed too, so that no backup of its sealed contents can be read. Raises
    KeysUnavailable.
    """
    async with database.relaxed() as conn:
        closing = await tenants.closing(conn)
    deleted = []
    left: ForeignKeyViolation | None = None
    for tenant in closing:
        try:
            if await _remove_contents(database, store, keyring, tenant):
                deleted.append(tenant.account_id)
                log.info("account.deleted", account=tenant.account_id)
        except ForeignKeyViolation as error:  # a request from before the close has stored something since
            left = error
    if left is not None:
        raise left
    return deleted


async def _remove_contents(database: Database, store: Store, keyring: Keyring | None, tenant: Tenant) -> bool:
    """Remove the data that can be removed now. False: some data is left for the next sweep."""
    await _cancel(database, tenant)
    while batches := await _ended(database, tenant):
        for batch in batches:
            await removal.remove(database, store, batch)
    async with database.relaxed() as conn:
        row = await (await conn.execute(queries.HAS_BATCHES, {"tenant_id": tenant.tenant_id})).fetchone()
    if row is None or row[0]:
        return False
    await files.forget(database, store, tenant.tenant_id)
    await account_removal.delete_all(database, tenant.tenant_id)
    if keyring is not None:
        await batch_keys.destroy_kek(database, keyring, tenant.tenant_id)
    async with database.durable() as conn:
        await budgets.forget(conn, tenant.tenant_id)
    async with database.transaction() as conn:
        await ledger.forget(conn, tenant.tenant_id)
        await removal.remove_shares(conn, tenant.tenant_id)
        await tenants.remove(conn, tenant.tenant_id)
    return True


async def _cancel(database: Database, tenant: Tenant) -> None:
    """Cancel every open pipeline, and every other open batch, each in its own transaction."""
    async with database.transaction() as conn:
        await stages.cancel_all(conn, tenant.tenant_id)
    values = {"tenant_id": tenant.tenant_id, "limit": _SLICE}
    while True:
        async with database.relaxed() as conn:
            rows = await (await conn.execute(queries.OPEN, values)).fetchall()
        for (request_id,) in rows:
            with suppress(Conflict, NotFound):  # it has ended in the meantime
                await lifecycle.change_state(database, tenant, request_id, "cancel")
        if not rows:
            return


async def _ended(database: Database, tenant: Tenant) -> list[removal.EndedBatch]:
    async with database.relaxed() as conn:
        return await removal.ended(conn, tenant.tenant_id)


async def _read(conn: Connection, account_id: str | None) -> list[Account]:
    rows = await (await conn.execute(queries.ACCOUNTS, {"account_id": account_id})).fetchall()
    return [Account(row[0], row[1], TenantState(row[2]), *row[3:]) for row in rows]
