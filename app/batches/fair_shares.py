"""Fair shares: what each account with queued work is due of the engines of a model, what it got, and who is next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app import clock
from app.batches import fair_shares_sql as sql
from app.db.pool import Connection

MOST_ACCOUNTS = sql.MOST_ACCOUNTS
FAR = 0.8  # who got less than this share of what is due is named


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


@dataclass(frozen=True, slots=True)
class Share:
    """One account in one pool. Shares are of one; `got`: None: nothing was served in this pool. `ahead`: before the next."""

    row: ShareRow
    due: float
    got: float | None
    tokens: int
    ahead: float
    next: bool

    @property
    def short(self) -> bool:
        """Whether an account with waiting work has got much less than its due."""
        return self.got is not None and self.row.ready > 0 and self.got < FAR * self.due


def shares(rows: Sequence[ShareRow], served: Mapping[tuple[str, int], int]) -> dict[str, list[Share]]:
    """The accounts of each pool, in the fair order."""
    pools: dict[str, list[ShareRow]] = {}
    for row in rows:
        pools.setdefault(row.model, []).append(row)
    return {model: _pool(model, members, served) for model, members in pools.items()}


def _pool(model: str, rows: Sequence[ShareRow], served: Mapping[tuple[str, int], int]) -> list[Share]:
    weights = sum(row.weight for row in rows)
    tokens = {row.tenant_id: served.get((model, row.tenant_id), 0) for row in rows}
    whole = sum(tokens.values())
    waiting = [row for row in rows if row.ready]
    lowest = min((row.vtime for row in waiting), default=min(row.vtime for row in rows))
    first = next((row.tenant_id for row in waiting if not row.at_limit), None)
    return [
        Share(
            row,
            row.weight / weights,
            tokens[row.tenant_id] / whole if whole else None,
            tokens[row.tenant_id],
            max(0.0, row.vtime - lowest) * row.weight,
            row.tenant_id == first,
        )
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Standing:
    """The accounts of each pool in the fair order, by model. `since`: from when on what they got is counted."""

    pools: Mapping[str, Sequence[Share]]
    since: datetime


async def standing(conn: Connection) -> Standing:
    """How every account stands now, with what queued work used in this hour and the one before."""
    since = window()
    return Standing(shares(await accounts(conn), await served(conn, since)), since)


def window() -> datetime:
    """The begin of the hour before this one."""
    return clock.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)


async def accounts(conn: Connection) -> list[ShareRow]:
    """Every account with work, by pool and in the fair order."""
    return [ShareRow(*row) for row in await (await conn.execute(sql.ACCOUNTS)).fetchall()]


async def served(conn: Connection, since: datetime) -> dict[tuple[str, int], int]:
    """The tokens of queued work by model and account since the beginning of an hour."""
    rows = await (await conn.execute(sql.SERVED, {"since": since})).fetchall()
    return {(model, tenant_id): tokens for model, tenant_id, tokens in rows}
