"""Reads of the pages about webhooks. Deliveries and attempts are read by app.webhooks.deliveries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from app.console import queries_webhooks_sql as sql
from app.db.pool import Connection

MOST_COUNTED = sql.MOST_COUNTED
VIEWS = tuple(sql.VIEWS)
PAGE_HOOKS = 50


@dataclass(frozen=True, slots=True)
class HookRow:
    """A webhook, or a queue, with its health. Counts of deliveries stop at MOST_COUNTED. `latest`: states, the newest first."""

    endpoint_id: UUID
    tenant_id: int
    account: str
    name: str
    url: str | None
    queue_id: str | None
    model: str | None
    kinds: Sequence[str]
    format: str
    state: str
    reason: str | None
    failing_since: datetime | None
    failures: int
    open_until: datetime | None
    previous_until: datetime | None
    ordered: bool
    max_in_flight: int
    max_per_second: float | None
    tags: Sequence[str]
    metadata: Mapping[str, str]
    created_at: datetime
    pending: int
    held: int
    sending: int
    dead: int
    latest: Sequence[str]


class Summary(NamedTuple):
    """How many endpoints there are: all, disabled, failing, with an open breaker."""

    known: int
    disabled: int
    failing: int
    open: int


async def hooks(
    conn: Connection, tenant_id: int | None, view: str, account: str | None, after: tuple[datetime, UUID] | None
) -> tuple[list[HookRow], bool]:
    """A page of endpoints, newest first, and whether there are more. `view`: one of VIEWS."""
    values: dict[str, Any] = {"tenant_id": tenant_id, "account": account, "limit": PAGE_HOOKS + 1}
    values |= {"after_at": after and after[0], "after": after and after[1]}
    rows = await (await conn.execute(sql.page(view).encode(), values)).fetchall()
    return [HookRow(*row) for row in rows[:PAGE_HOOKS]], len(rows) > PAGE_HOOKS


async def hook(conn: Connection, tenant_id: int | None, endpoint_id: UUID) -> HookRow | None:
    """One endpoint. None: there is none, or it is another account's."""
    values = {"tenant_id": tenant_id, "endpoint_id": endpoint_id}
    row = await (await conn.execute(sql.ONE.encode(), values)).fetchone()
    return None if row is None else HookRow(*row)


async def summary(conn: Connection, tenant_id: int | None) -> Summary:
    """How many endpoints there are, and how they do."""
    [row] = await (await conn.execute(sql.SUMMARY.encode(), {"tenant_id": tenant_id})).fetchall()
    return Summary(*row)


async def last_accepted(conn: Connection, endpoint_id: UUID) -> datetime | None:
    """When the endpoint accepted the newest delivery that it has accepted."""
    row = await (await conn.execute(sql.LAST_ACCEPTED, {"endpoint_id": endpoint_id})).fetchone()
    return None if row is None else row[0]
