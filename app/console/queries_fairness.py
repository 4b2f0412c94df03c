"""Reads of the page about fair shares."""

from dataclasses import dataclass
from datetime import datetime

from app.console import queries_fairness_sql as sql
from app.db.pool import Connection

MOST_ACCOUNTS = sql.MOST_ACCOUNTS


@dataclass(frozen=True, slots=True)
class ShareRow:
    """An account with work in the pool of a model. `vtime`: tokens served by weight, the lowest is next."""

    model: str
    tenant_id: int
    account: str
    weight: float
    max_inflight: int
    vtime: float
    ready: int
    inflight: int

    @property
    def at_limit(self) -> bool:
        """Whether it has as many tokens in flight as it may have."""
        return self.inflight >= self.max_inflight


async def accounts(conn: Connection) -> list[ShareRow]:
    """Every account with work, by pool and in the fair order."""
    return [ShareRow(*row) for row in await (await conn.execute(sql.ACCOUNTS)).fetchall()]


async def served(conn: Connection, since: datetime) -> dict[tuple[str, int], int]:
    """The tokens of queued work by model and account since the beginning of an hour."""
    rows = await (await conn.execute(sql.SERVED, {"since": since})).fetchall()
    return {(model, tenant_id): tokens for model, tenant_id, tokens in rows}
