"""Lists of API keys with their use, page by page, without their secrets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from app.db.pool import Connection
from app.tenants import key_list_sql as sql

PAGE_KEYS = 50
VIEWS = tuple(sql.VIEWS)
ID = "[0-9a-zA-Z]{1,32}"  # of a key, as a pattern


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A key without its secret. `requests`, `tokens`: of the present minute; None: it was not used in it."""

    key_id: str
    account: str
    name: str
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    requests_per_minute: int | None
    tokens_per_minute: int | None
    pins: Sequence[str] | None
    requests: int | None
    tokens: int | None
    role: str = "admin"
    models: Sequence[str] | None = None
    endpoints: Sequence[str] | None = None
    networks: Sequence[str] | None = None


class KeySummary(NamedTuple):
    """How many keys are live; of these, not used for 30 days; of these, that expire within 14."""

    live: int
    unused: int
    expiring: int


async def keys(
    conn: Connection, tenant_id: int | None, view: str, account: str | None, after: tuple[datetime, str] | None
) -> tuple[list[KeyRow], bool]:
    """A page of keys, newest first, and whether there are more. `view`: one of VIEWS."""
    values: dict[str, Any] = {"tenant_id": tenant_id, "account": account, "limit": PAGE_KEYS + 1}
    values |= {"after_at": after and after[0], "after": after and after[1]}
    rows = await (await conn.execute(sql.page(view).encode(), values)).fetchall()
    return [KeyRow(*row) for row in rows[:PAGE_KEYS]], len(rows) > PAGE_KEYS


async def key(conn: Connection, tenant_id: int | None, key_id: str) -> KeyRow | None:
    """One key. None: there is none, or it is another account's."""
    row = await (await conn.execute(sql.ONE, {"tenant_id": tenant_id, "key_id": key_id})).fetchone()
    return None if row is None else KeyRow(*row)


async def summary(conn: Connection, tenant_id: int | None) -> KeySummary:
    """How many keys there are, and how they are used."""
    [row] = await (await conn.execute(sql.SUMMARY, {"tenant_id": tenant_id})).fetchall()
    return KeySummary(*row)


def parse_id(text: str) -> str:
    """The id of a key. Raises ValueError for what is none."""
    if not re.fullmatch(ID, text):
        raise ValueError(text)
    return text
