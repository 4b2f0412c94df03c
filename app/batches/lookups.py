"""Looks up what an id, a name or a tag belongs to, by a few look-ups of keys."""

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from app.batches import lookups_sql as sql
from app.batches.id_prefix import id_range
from app.db import name_prefix
from app.db.pool import Connection

FEWEST = 2  # characters
LONGEST = 200
_MOST_NUMBER = 2**63


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


class Finding(NamedTuple):
    """Everything that was found. `tag`: the text, if batches have it as a tag; else empty."""

    batches: Sequence[FoundBatch]
    others: Sequence[Found]
    tag: str


async def find(conn: Connection, tenant_id: int | None, asked: str) -> Finding:
    """What has this name, this tag, or an id that begins so. `tenant_id` None: of all accounts."""
    asked = asked.strip()[:LONGEST]
    if len(asked) < FEWEST or "\x00" in asked:
        return Finding([], [], "")
    ids = id_range(asked)
    batches = await batches_by_id(conn, tenant_id, ids) if ids else []
    others = await flows_by_id(conn, tenant_id, ids) if ids else []
    if ids and ids[0] == ids[1]:
        others += await hook(conn, tenant_id, ids[0])
    elif asked.isdecimal() and int(asked) < _MOST_NUMBER:
        others += await delivery(conn, tenant_id, int(asked))
    others += await named(conn, tenant_id, asked)
    others += [each for each in await pipelines_by_name(conn, tenant_id, asked) if each not in others]
    known = {each.request_id for each in batches}
    batches += [each for each in await batches_by_name(conn, tenant_id, asked) if each.request_id not in known]
    return Finding(batches, others, asked if await tagged(conn, tenant_id, asked) else "")


async def batches_by_id(conn: Connection, tenant_id: int | None, ids: tuple[UUID, UUID]) -> list[FoundBatch]:
    """Batches whose id is in a range."""
    return await _batches(conn, sql.BATCHES_BY_ID, tenant_id=tenant_id, id_from=ids[0], id_to=ids[1])


async def batches_by_name(conn: Connection, tenant_id: int | None, prefix: str) -> list[FoundBatch]:
    """Batches whose name begins so."""
    return await _batches(conn, sql.BATCHES_BY_NAME, tenant_id=tenant_id, name=prefix, name_end=name_prefix.end(prefix))


async def pipelines_by_name(conn: Connection, tenant_id: int | None, prefix: str) -> list[Found]:
    """Pipelines whose name begins so."""
    return await _found(conn, sql.PIPELINES_BY_NAME, tenant_id=tenant_id, name=prefix, name_end=name_prefix.end(prefix))


async def flows_by_id(conn: Connection, tenant_id: int | None, ids: tuple[UUID, UUID]) -> list[Found]:
    """Pipelines and conversations whose id is in a range."""
    return await _found(conn, sql.FLOWS_BY_ID, tenant_id=tenant_id, id_from=ids[0], id_to=ids[1])


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
