"""Quotas of an account: how much it may have queued and stored. They guard the disk; engine capacity refuses nothing.

What is used is counted from the rows themselves, in the transaction that adds to them, while the account's quota is locked. So
concurrent submits together never exceed it. An account without a quota costs nothing. A lowered quota deletes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from operator import add

from app.admission import quota_sql as sql
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record, changed
from app.db.pool import Connection
from app.errors import QuotaExceeded
from app.openai_codes import OpenAICode
from app.tenants import service as tenants
from app.tenants.service import Tenant

_OF_FILES = {"queued_tokens": OpenAICode.QUEUED_TOKENS}  # OpenAI's code for a batch of a file


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of an account. None: no limit. See the table `quota`."""

    open_batches: int | None = None
    open_items: int | None = None
    queued_tokens: int | None = None
    stored_bytes: int | None = None


NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request adds to each quota."""

    open_batches: int = 0
    open_items: int = 0
    queued_tokens: int = 0
    stored_bytes: int = 0

    def __add__(self, other: "Demand") -> "Demand":
        return Demand(*map(add, astuple(self), astuple(other)))


NAMES = tuple(field.name for field in fields(Quota))
_NOUNS = {
    "open_batches": "open batches",
    "open_items": "open items",
    "queued_tokens": "queued tokens",
    "stored_bytes": "stored bytes",
}
_MENDS = {"stored_bytes": "delete files"}
_MEND = "wait until some of the account's queued work is done, or cancel some"


class QuotaBusy(Exception):
    """Somebody else adds to the account at this moment."""


async def check(conn: Connection, tenant: Tenant, demand: Demand, *, of_file: bool = False) -> None:
    """Lock the account's quota until the transaction ends, and raise QuotaExceeded if the demand would exceed it.

    Call before anything else of the transaction. `of_file`: the request is a batch file, whose errors have OpenAI's code.
    """
    if tenant.has_quota:
        await _check(conn, tenant, await lock(conn, tenant), demand, _OF_FILES if of_file else {})


async def check_free(conn: Connection, tenant: Tenant, demand: Demand) -> None:
    """As `check`, for who works for many accounts and waits for none. Raises QuotaBusy if somebody else has locked the quota."""
    if not tenant.has_quota:
        return
    row = await (await conn.execute(sql.LOCK_FREE, {"tenant_id": tenant.tenant_id})).fetchone()
    if row is not None:
        await _check(conn, tenant, row, demand, {})
    elif await limits(conn, tenant.tenant_id) != NO_QUOTA:
        raise QuotaBusy(f"another process adds to account {tenant.account_id}")


async def _check(
    conn: Connection, tenant: Tenant, locked: Sequence[int | None], demand: Demand, codes: Mapping[str, OpenAICode]
) -> None:
    for name, limit, more in zip(NAMES, locked, astuple(demand), strict=True):
        if limit is None or not more:
            continue
        used = await _used(conn, tenant.tenant_id, name)
        if used + more > limit:
            raise QuotaExceeded(_message(name, used, more, limit), quota=name, reason=codes.get(name, OpenAICode.QUOTA))


async def lock(conn: Connection, tenant: Tenant) -> tuple[int | None, ...]:
    """Lock the account's quota until the transaction ends. Returns its limits in the order of NAMES."""
    if not tenant.has_quota:
        return (None,) * len(NAMES)
    row = await (await conn.execute(sql.LOCK, {"tenant_id": tenant.tenant_id})).fetchone()
    return tuple(row) if row else (None,) * len(NAMES)


async def check_queued(conn: Connection, tenant: Tenant, locked: Sequence[int | None]) -> None:
    """Raise QuotaExceeded if the account, with this transaction's work, has more queued than the limits that `lock` returned."""
    for name, limit in zip(NAMES[:3], locked, strict=False):
        if limit is not None and (used := await _used(conn, tenant.tenant_id, name)) > limit:
            raise QuotaExceeded(
                f"Quota: the account would have {used:,} of {limit:,} {_NOUNS[name]}; {_MEND}", quota=name
            )


async def limits(conn: Connection, tenant_id: int) -> Quota:
    """The quota of an account."""
    row = await (await conn.execute(sql.LIMITS, {"tenant_id": tenant_id})).fetchone()
    return Quota(*row) if row else NO_QUOTA


async def usage(conn: Connection, tenant_id: int) -> Demand:
    """What the account uses at present of each quota, whether it is limited or not."""
    return Demand(*[await _used(conn, tenant_id, name) for name in NAMES])


async def change(conn: Connection, account_id: str, quota: Quota) -> None:
    """Set the limits of an account; those that are None have no limit. They hold within a second. Raises AccountUnknown.

    Call inside a transaction.
    """
    tenant_id = await tenants.find_tenant(conn, account_id)
    before, after = changed(asdict(await limits(conn, tenant_id)), asdict(quota))
    if after:
        await log.record(conn, Record(Act.QUOTA_SET, account_id, account_id, before=before, after=after))
    if quota == NO_QUOTA:
        await conn.execute(sql.REMOVE, {"tenant_id": tenant_id})
    else:
        await conn.execute(sql.SET, dict(zip(NAMES, astuple(quota), strict=True)) | {"tenant_id": tenant_id})
    await tenants.note_quota(conn, tenant_id, has_quota=quota != NO_QUOTA)


async def _used(conn: Connection, tenant_id: int, name: str) -> int:
    row = await (await conn.execute(sql.USE[name], {"tenant_id": tenant_id})).fetchone()
    assert row is not None
    return int(row[0])


def _message(name: str, used: int, more: int, limit: int) -> str:
    noun = _NOUNS[name]
    if more > limit:
        return f"Quota: this needs {more:,} {noun}, but the account may have {limit:,}; send less at once"
    full = f"the account has {used:,} of {limit:,} {noun}, and this would add {more:,}"
    return f"Quota: {full}; {_MENDS.get(name, _MEND)}, or ask the operator for more"
