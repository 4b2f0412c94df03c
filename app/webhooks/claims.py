"""Claims: the leases under which a notifier sends deliveries. Each has a fence, and outcomes are recorded only while it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app import events
from app.db.pool import Connection
from app.webhooks import delivery_sql as sql
from app.webhooks.formats import Event


@dataclass(frozen=True)
class Claim:
    """A delivery that this process may attempt once, until its lease ends.

    `attempt`: counts from 1, and again from 1 after a redelivery. `probe`: a test event. `begun`, `due_at`: by the database's
    clock. `secrets`, `signing_keys`: sealed; the endpoint's own and, during a rotation, the previous one.
    `watched`: the endpoint is failing or not verified, so a success changes its state. `hosts`: the only hosts that webhooks of
    this tenant may go to; None: any.
    """

    delivery_id: int
    fence: int
    attempt: int
    probe: bool
    endpoint_id: UUID
    tenant_id: int
    url: str
    secrets: tuple[bytes, ...]
    signing_keys: tuple[bytes, ...]
    format: str
    watched: bool
    account: str
    hosts: tuple[str, ...] | None
    begun: datetime
    due_at: datetime
    event: Event


async def claim(conn: Connection, endpoint_ids: Sequence[UUID], *, most: int, lease_seconds: float) -> list[Claim]:
    """Claim due deliveries: at most `most` for each endpoint, and no more than its limits allow. Call in a transaction."""
    ids = list(endpoint_ids)
    await conn.execute(sql.LOCK_ENDPOINTS.encode(), [ids])
    values = {"endpoint_ids": ids, "most": most, "lease": lease_seconds}
    return [_claim(*row) for row in await (await conn.execute(sql.CLAIM.encode(), values)).fetchall()]


def _claim(*row: Any) -> Claim:
    message_id, kind, model, data, occurred_at = row[-5:]
    event = Event(message_id, kind, model, events.from_json(kind, data), occurred_at)
    *names, url, secret, previous_secret, key, previous_key = row[:11]
    secrets, keys = (tuple(each for each in both if each) for both in ((secret, previous_secret), (key, previous_key)))
    return Claim(*(*names, url, secrets, keys, *row[11:-5], event))
