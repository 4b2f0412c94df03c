"""Budgets: their rows, their windows, and what is spent and held. Call inside transactions; see `budget_sql` for the lock order.

Only the steward changes what is held for chunks. A process that answers synchronous requests changes its slices (`slices`).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.db.pool import Connection
from app.errors import NotFound
from app.metering import budget_rules, windows
from app.metering import budget_sql as sql
from app.metering.budget_rules import COLUMNS, Budget, BudgetTerms, Owner, Scope, Unit, WhenSpent
from app.money_sums import ReturnedSum, UsedSum

MOST_BUDGETS = 100  # of an account
DEAD_SECONDS = 60.0
REPORTS_KEPT_DAYS = 7  # a process that has not reported for so long does not repeat a report


@dataclass(frozen=True, slots=True)
class Held:
    """What chunks and unsettled deltas of a lane hold."""

    lane_id: int
    cost: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Renewed:
    """A budget whose window was turned. `was_spent`: its money had ended."""

    budget: Budget
    was_spent: bool


@dataclass(frozen=True, slots=True)
class Drift:
    """The correction of what a budget holds."""

    tenant_id: int
    name: str
    amount: int


def of_row(row: Sequence[Any]) -> Budget:
    """A budget from its columns."""
    values = dict(zip(COLUMNS, row, strict=False))
    kinds = {
        "scope": Scope,
        "unit": Unit,
        "when_spent": WhenSpent,
        "soft": tuple,
        "fallback": tuple,
        "diverted_to": tuple,
        "owner": Owner,
    }
    return Budget(**values | {name: kind(values[name]) for name, kind in kinds.items()})


async def any_exists(conn: Connection) -> bool:
    """Whether any account has a budget."""
    row = await (await conn.execute(sql.ANY)).fetchone()
    return bool(row and row[0])


async def listing(conn: Connection, tenant_id: int) -> list[Budget]:
    """The budgets of an account, by name."""
    return [of_row(row) for row in await (await conn.execute(sql.LIST, {"tenant_id": tenant_id})).fetchall()]


async def every(conn: Connection) -> list[Budget]:
    """The budgets of all accounts."""
    return [of_row(row) for row in await (await conn.execute(sql.ALL)).fetchall()]


async def of_ids(conn: Connection, budget_ids: Sequence[int]) -> list[Budget]:
    """Those of these budgets that exist."""
    return [of_row(row) for row in await (await conn.execute(sql.OF_IDS, {"ids": list(budget_ids)})).fetchall()]


async def of_name(conn: Connection, tenant_id: int, name: str) -> Budget | None:
    """The budget of this name, locked until the transaction ends."""
    row = await (await conn.execute(sql.ONE, {"tenant_id": tenant_id, "name": name})).fetchone()
    return None if row is None else of_row(row)


async def put(conn: Connection, tenant_id: int, terms: BudgetTerms, owner: Owner = Owner.ACCOUNT) -> Budget:
    """Add a budget or change the one of this name, which is its `owner`'s from now on.

    What it has spent stays, unless it now counts something else. If its maximum changes, the events of the thresholds above what
    is spent can come again.

    Raises ValueError: too many budgets.
    """
    old = await of_name(conn, tenant_id, terms.name)
    row = await (await conn.execute(sql.COUNT, {"tenant_id": tenant_id})).fetchone()
    if old is None and row is not None and row[0] >= MOST_BUDGETS:
        raise ValueError(f"the account has {MOST_BUDGETS} budgets, which is the limit; delete one")
    [(now,)] = await (await conn.execute(sql.NOW)).fetchall()
    begin, end = windows.window(terms.period, terms.tz, now)
    values = asdict(terms) | {"tenant_id": tenant_id, "window_from": begin, "window_to": end, "owner": owner}
    values |= {"soft": list(terms.soft), "fallback": list(terms.fallback)}
    [(budget_id,)] = await (await conn.execute(sql.PUT, values)).fetchall()
    if old is None or any(getattr(old, name) != getattr(terms, name) for name in _COUNTED) or old.window_from != begin:
        await conn.execute(sql.FROM_LEDGER, {"budget_id": budget_id})
    new = await of_name(conn, tenant_id, terms.name)
    assert new is not None
    return new


_COUNTED = ("scope", "scope_value", "unit", "currency", "period", "tz")


async def remove(conn: Connection, tenant_id: int, name: str) -> None:
    """Remove a budget. What it held is free at once. Raises NotFound."""
    done = await conn.execute(sql.DELETE, {"tenant_id": tenant_id, "name": name})
    if not done.rowcount:
        raise NotFound(f"There is no budget {name!r} in this account")


async def locked(conn: Connection, budget_ids: Sequence[int]) -> list[Budget]:
    """These budgets, locked until the transaction ends. Those that do not exist any more are missing."""
    return [of_row(row) for row in await (await conn.execute(sql.LOCK, {"ids": list(budget_ids)})).fetchall()]


async def locked_free(conn: Connection, budget_ids: Sequence[int]) -> list[Budget] | None:
    """As `locked`, without waiting. None: somebody else has locked one of them."""
    rows = await (await conn.execute(sql.LOCK_FREE, {"ids": list(budget_ids)})).fetchall()
    if len(rows) < len(budget_ids) and len(rows) < len(await of_ids(conn, budget_ids)):
        return None
    return [of_row(row) for row in rows]


async def turn(conn: Connection) -> list[Renewed]:
    """Begin the next window of every budget whose window has ended. One that somebody has locked is turned by the next call."""
    renewed = []
    for row in await (await conn.execute(sql.DUE)).fetchall():
        budget, now = of_row(row), row[-1]
        begin, end = windows.window(budget.period, budget.tz, now)
        values = {"budget_id": budget.budget_id, "window_from": begin, "window_to": end}
        await conn.execute(sql.TURN, values)
        renewed.append(Renewed(budget, budget.spent_noted))
    return renewed


async def spend(conn: Connection, used: Sequence[UsedSum]) -> list[Budget]:
    """Add what results cost to the budgets that count their lines. Returns these budgets as they are now."""
    if not used:
        return []
    names = ("at", "line_id", "prompt", "cached", "output")
    rows = await conn.execute(sql.SPEND, {name: [getattr(each, name) for each in used] for name in names})
    return [of_row(row) for row in await rows.fetchall()]


async def give_back(conn: Connection, returned: Sequence[ReturnedSum]) -> None:
    """Return holds, and learn what share of the worst results use."""
    if not returned:
        return
    columns = {
        name: [getattr(each, name) for each in returned]
        for name in ("cost", "tokens", "line_id", "prompt", "cached", "output", "worst", "worst_tokens")
    }
    columns["lane"] = [each.lane_id for each in returned]
    await conn.execute(sql.RETURN, columns)
    await conn.execute(sql.LEARN, columns)


async def hold(conn: Connection, budget_ids: Sequence[int], cost: int, tokens: int) -> None:
    """Hold this much in each of the budgets, in its unit. They must be locked."""
    await conn.execute(sql.HOLD, {"ids": list(budget_ids), "cost": cost, "tokens": tokens})


async def note(conn: Connection, budget: Budget, percent: int) -> None:
    """Note that the events up to this soft threshold are written, or that of the end of its money."""
    query = sql.SPENT_NOTED if percent >= budget_rules.SPENT else sql.NOTIFIED
    await conn.execute(query, {"budget_id": budget.budget_id, "percent": percent})


async def note_diverted(conn: Connection, budget: Budget, model: str) -> bool:
    """Note that work was diverted to this model in this window. False: it is noted already."""
    rows = await conn.execute(sql.DIVERTED, {"budget_id": budget.budget_id, "model": model})
    return await rows.fetchone() is not None


async def lock_all_free(conn: Connection) -> list[int]:
    """Lock every budget that nobody else has locked until the transaction ends. Returns their ids."""
    return [budget_id for (budget_id,) in await (await conn.execute(sql.LOCK_ALL_FREE)).fetchall()]


async def recount(conn: Connection, held: Sequence[Held], only: Sequence[int]) -> list[Drift]:
    """Set what these budgets hold to what chunks, deltas and slices have.

    Call after these budgets were locked, with counts read after it.
    """
    values = {
        "lane": [each.lane_id for each in held],
        "cost": [each.cost for each in held],
        "tokens": [each.tokens for each in held],
        "only": list(only),
    }
    return [Drift(*row) for row in await (await conn.execute(sql.RECOUNT, values)).fetchall()]


async def empty_slices(conn: Connection, budget_id: int) -> None:
    """Take back the slices of a locked budget. What it holds is to be recounted."""
    await conn.execute(sql.EMPTY_SLICES, {"budget_id": budget_id})


async def return_dead_slices(conn: Connection, budget_ids: Sequence[int]) -> int:
    """Return the slices of these locked budgets whose processes have not written for DEAD_SECONDS. Returns of how many budgets.

    The number of a process's last report is kept for REPORTS_KEPT_DAYS.
    """
    await conn.execute(sql.FORGET_SLICES, {"days": REPORTS_KEPT_DAYS})
    values = {"seconds": DEAD_SECONDS}
    rows = await (await conn.execute(sql.DEAD_SLICES, values | {"ids": list(budget_ids)})).fetchall()
    for (budget_id,) in sorted(rows):
        await conn.execute(sql.RETURN_DEAD, values | {"budget_id": budget_id})
    return len(rows)


async def gauges(conn: Connection, beyond: Sequence[tuple[int, float, float]]) -> list[tuple[str, str, float]]:
    """The gauges of budgets: (name, account/budget, value). `beyond`: by lane, what queued work can cost and use beyond holds."""
    lanes, costs, tokens = (list(column) for column in zip(*beyond, strict=True)) if beyond else ([], [], [])
    values = {"lane": lanes, "cost": costs, "tokens": tokens, "dead_seconds": DEAD_SECONDS}
    return [tuple(row) for row in await (await conn.execute(sql.GAUGES, values)).fetchall()]
