"""The look-ups of the search."""

from typing import Any, NamedTuple
from uuid import UUID

from app.console import queries_find_sql as sql
from app.db.pool import Connection

MOST = sql.MOST


class FoundBatch(NamedTuple):
    """A batch; its name is empty if it has none."""

    request_id: UUID
    name: str
    account: str
    model: str
    state: str


class Found(NamedTuple):
    """Something else: `identity` is the last part of its address, `of` what it belongs to."""

    kind: str
    identity: str
    name: str
    of: str


async def batches_by_id(conn: Connection, tenant_id: int | None, ids: tuple[UUID, UUID]) -> list[FoundBatch]:
    """Batches whose id is in a range."""
    return await _batches(conn, sql.BATCHES_BY_ID, tenant_id=tenant_id, id_from=ids[0], id_to=ids[1])


async def batches_by_name(conn: Connection, tenant_id: int | None, prefix: str) -> list[FoundBatch]:
    """Batches whose name begins so."""
    literal = prefix.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return await _batches(conn, sql.BATCHES_BY_NAME, tenant_id=tenant_id, pattern=f"{literal}%")


async def _batches(conn: Connection, statement: str, **values: Any) -> list[FoundBatch]:
    return [FoundBatch(*row) for row in await (await conn.execute(statement.encode(), values)).fetchall()]


async def named(conn: Connection, tenant_id: int | None, text: str) -> list[Found]:
    """Engines, keys and accounts that are called exactly so."""
    return await _found(conn, sql.NAMED, tenant_id=tenant_id, text=text)


async def hook(conn: Connection, tenant_id: int | None, endpoint_id: UUID) -> list[Found]:
    """The webhook of this id."""
    return await _found(conn, sql.HOOK, tenant_id=tenant_id, id_from=endpoint_id)


async def delivery(conn: Connection, tenant_id: int | None, number: int) -> list[Found]:
    """The delivery of this number."""
    return await _found(conn, sql.DELIVERY, tenant_id=tenant_id, number=number)


async def _found(conn: Connection, statement: str, **values: Any) -> list[Found]:
    return [Found(*row) for row in await (await conn.execute(statement.encode(), values)).fetchall()]


async def tagged(conn: Connection, tenant_id: int | None, tag: str) -> bool:
    """Whether any batch has this tag."""
    [(found,)] = await (await conn.execute(sql.TAGGED.encode(), {"tenant_id": tenant_id, "text": tag})).fetchall()
    return bool(found)
