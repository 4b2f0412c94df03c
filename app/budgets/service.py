"""Budgets: their rows, their windows, what is spent and reserved, and the verbs of their owners. Call inside transactions; see
`sql` for the lock order. Queued work follows a changed budget within a round of the steward (`queued`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app import clock
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record, changed
from app.budgets import events, sql, terms
from app.budgets.rules import COLUMNS, Budget, BudgetTerms, LineBudgets, Queued, Reserve, Scope, Synchronous, Unit
from app.db.pool import Connection
from app.errors import BadInput, Conflict, NotFound
from app.metering import windows
from app.metering.money import TokenPrice
from app.queue import settling
from app.tenants import service as tenants

MOST_BUDGETS = 100  # of an account
MOVE_SECONDS = 60.0  # for so long after a change of budgets, the steward moves chunks that were cut before it
DEAD_SECONDS = 60.0
REPORTS_KEPT_DAYS = 7  # a process that has not reported for so long does not repeat a report
_FRESH_SECONDS = MOVE_SECONDS / 2  # the rest is left for the commit
_LINE_COLUMNS = 7  # of BUDGETS_OF_LINES, before those of the budget
_COUNTED = ("scope", "scope_value", "unit", "currency", "period", "tz")


@dataclass(frozen=True, slots=True)
class Drift:
    """The correction of what a budget has reserved."""

    tenant_id: int
    name: str
    amount: int


def of_row(row: Sequence[Any]) -> Budget:
    """A budget from its columns."""
    values = dict(zip((*COLUMNS, "tentative"), row, strict=False))
    kinds = {
        "scope": Scope,
        "unit": Unit,
        "queued": Queued,
        "synchronous": Synchronous,
        "reserve": Reserve,
        "alerts_at": tuple,
        "diverted_to": tuple,
    }
    return Budget(**values | {name: kind(values[name]) for name, kind in kinds.items()})


async def any_exists(conn: Connection) -> bool:
    """Whether any account has a budget."""
    row = await (await conn.execute(sql.ANY)).fetchone()
    return bool(row and row[0])


async def listing(conn: Connection, tenant_id: int) -> list[Budget]:
    """The budgets of an account, by name."""
    return [of_row(row) for row in await (await conn.execute(sql.LIST, {"tenant_id": tenant_id})).fetchall()]


async def every(conn: Connection, *, shown: bool = False) -> list[Budget]:
    """The budgets of all accounts. `shown`: with what is tentative, which takes longer."""
    return [of_row(row) for row in await (await conn.execute(sql.ALL_SHOWN if shown else sql.ALL)).fetchall()]


async def of_ids(conn: Connection, budget_ids: Sequence[int]) -> list[Budget]:
    """Those of these budgets that exist."""
    return [of_row(row) for row in await (await conn.execute(sql.OF_IDS, {"ids": list(budget_ids)})).fetchall()]


async def of_name(conn: Connection, tenant_id: int, name: str) -> Budget | None:
    """The budget of this name, locked until the transaction ends."""
    row = await (await conn.execute(sql.ONE, {"tenant_id": tenant_id, "name": name})).fetchone()
    return None if row is None else of_row(row)


# ---------------------------------------------------------------- the verbs of owners


async def put(
    conn: Connection, tenant_id: int, name: str, given: Mapping[str, Any], *, where: str = "", only_new: bool = False
) -> Budget:
    """Add the budget of this name; change it, unless `only_new`. Call inside a transaction. Raises BadInput, Conflict."""
    wanted = terms.parse(name, given, where=where)
    if wanted.scope == Scope.KEY and not await tenants.has_key(conn, tenant_id, wanted.scope_value):
        raise BadInput(
            f"{where}key: the account has no key {wanted.scope_value[:64]!r}; give the id that `slackwater key list` shows",
            param="key",
        )
    await settling.exclusively(conn)  # so that no result is counted between the ledger and the new budget
    before = await of_name(conn, tenant_id, name)
    if only_new and before is not None:
        problem = f"the account has a budget {name!r}; change that one, or take another name"
        raise Conflict(f"{where}name: {problem}", param="name")
    try:
        budget = await store(conn, tenant_id, wanted)
    except ValueError as error:
        raise Conflict(f"{where}{name}: {error}") from None
    if before is not None and before.counts != budget.counts:
        await conn.execute(sql.EMPTY, {"budget_id": budget.budget_id})
        await recount(conn, [budget.budget_id])
        budget = await of_name(conn, tenant_id, name) or budget
    await events.reached(conn, [budget])
    old, new = changed(_terms(before), _terms(budget))
    if new:
        account = await tenants.account_id_of(conn, tenant_id)
        record = Record(Act.BUDGET_SET, name, account, before=None if before is None else old, after=new)
        await log.record(conn, record)
    return budget


async def remove(conn: Connection, tenant_id: int, name: str) -> None:
    """Remove a budget. Work that waited for its money goes on. Raises NotFound."""
    before = await of_name(conn, tenant_id, name)
    if before is None:
        raise NotFound(f"There is no budget {name!r} in this account")
    await conn.execute(sql.DELETE, {"tenant_id": tenant_id, "name": name})
    account = await tenants.account_id_of(conn, tenant_id)
    await log.record(conn, Record(Act.BUDGET_REMOVE, name, account, before=_terms(before)))


async def forget(conn: Connection, tenant_id: int) -> None:
    """Remove the budgets of an account that is being deleted."""
    await conn.execute(sql.FORGET, {"tenant_id": tenant_id})


def _terms(budget: Budget | None) -> dict[str, Any]:
    """What was set of a budget, without what it counts."""
    shown = {} if budget is None else terms.view(budget)
    return {name: value for name, value in shown.items() if name not in terms.COUNTED}


async def store(conn: Connection, tenant_id: int, wanted: BudgetTerms) -> Budget:
    """Add a budget or change the one of this name. What it has spent stays, unless it now counts something else. If its maximum
    changes, the alerts above what is spent can come again.

    Raises ValueError: too many budgets.
    """
    old = await of_name(conn, tenant_id, wanted.name)
    row = await (await conn.execute(sql.COUNT, {"tenant_id": tenant_id})).fetchone()
    if old is None and row is not None and row[0] >= MOST_BUDGETS:
        raise ValueError(f"the account has {MOST_BUDGETS} budgets, which is the limit; delete one")
    [(now,)] = await (await conn.execute(sql.NOW)).fetchall()
    begin, end = windows.window(wanted.period, wanted.tz, now)
    values = asdict(wanted) | {"tenant_id": tenant_id, "window_from": begin, "window_to": end}
    values |= {"alerts_at": list(wanted.alerts_at)}
    [(budget_id,)] = await (await conn.execute(sql.PUT, values)).fetchall()
    if old is None or any(getattr(old, name) != getattr(wanted, name) for name in _COUNTED) or old.window_from != begin:
        await conn.execute(sql.FROM_LEDGER, {"budget_id": budget_id})
    new = await of_name(conn, tenant_id, wanted.name)
    assert new is not None
    return new


# ---------------------------------------------------------------- windows, and what is spent and reserved


async def locked(conn: Connection, budget_ids: Sequence[int]) -> list[Budget]:
    """These budgets, locked until the transaction ends. Those that do not exist any more are missing."""
    return [of_row(row) for row in await (await conn.execute(sql.LOCK, {"ids": list(budget_ids)})).fetchall()]


async def locked_free(conn: Connection, budget_ids: Sequence[int]) -> list[Budget] | None:
    """As `locked`, without waiting. None: somebody else has locked one of them."""
    rows = await (await conn.execute(sql.LOCK_FREE, {"ids": list(budget_ids)})).fetchall()
    if len(rows) < len(budget_ids) and len(rows) < len(await of_ids(conn, budget_ids)):
        return None
    return [of_row(row) for row in rows]


async def turn(conn: Connection) -> None:
    """Begin the next window of every budget whose window has ended, and write the events. One that somebody has locked is turned
    by the next call.
    """
    for row in await (await conn.execute(sql.DUE)).fetchall():
        budget, now = of_row(row[:-1]), row[-1]
        begin, end = windows.window(budget.period, budget.tz, now)
        await conn.execute(sql.TURN, {"budget_id": budget.budget_id, "window_from": begin, "window_to": end})
        await events.renewed(conn, budget)


async def recount(conn: Connection, only: Sequence[int] | None = None) -> list[Drift]:
    """Correct what these budgets have reserved: those that the transaction has locked. None: all that nobody else has locked,
    which also get back what dead processes had reserved.
    """
    if only is None:
        only = [budget_id for (budget_id,) in await (await conn.execute(sql.LOCK_ALL_FREE)).fetchall()]
        await _return_dead(conn, only)
    return [Drift(*row) for row in await (await conn.execute(sql.RECOUNT, {"only": list(only)})).fetchall()]


async def _return_dead(conn: Connection, budget_ids: Sequence[int]) -> None:
    """Return what processes that have not written for DEAD_SECONDS had reserved in these locked budgets. The number of a
    process's last report is kept for REPORTS_KEPT_DAYS.
    """
    await conn.execute(sql.FORGET_DEAD, {"days": REPORTS_KEPT_DAYS})
    values = {"seconds": DEAD_SECONDS}
    rows = await (await conn.execute(sql.DEAD, values | {"ids": list(budget_ids)})).fetchall()
    for (budget_id,) in sorted(rows):
        await conn.execute(sql.RETURN_DEAD, values | {"budget_id": budget_id})


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """The gauges of budgets and of what waits for them: (name, account/budget or model, value)."""
    return [tuple(row) for row in await (await conn.execute(sql.GAUGES, {"dead_seconds": DEAD_SECONDS})).fetchall()]


# ---------------------------------------------------------------- the budgets of queued work


class BudgetsChanged(Exception):
    """Budgets were changed since they were read: cut the chunks anew."""


@dataclass(frozen=True, slots=True)
class Look:
    """The budgets of those lines that have any, as they were at `read_at`, in seconds of the monotonic clock."""

    line_ids: Sequence[int | None]
    of_line: Mapping[int | None, LineBudgets]
    read_at: float

    async def check(self, conn: Connection) -> None:
        """Call last in the transaction that stores chunks of these lines. Raises BudgetsChanged.

        The steward moves what is stored within MOVE_SECONDS after a change of budgets. So the budgets are read again only in a
        transaction that comes so late that its chunks may not be moved.
        """
        if clock.monotonic() - self.read_at < _FRESH_SECONDS:
            return
        if _ids(await of_lines(conn, self.line_ids)) != _ids(self.of_line):
            raise BudgetsChanged


def _ids(of_line: Mapping[int | None, LineBudgets]) -> dict[int | None, tuple[int, ...]]:
    return {line_id: found.ids for line_id, found in of_line.items()}


async def look(conn: Connection, line_ids: Sequence[int | None]) -> Look:
    """The budgets of work that is going to be queued, with the moment of the look."""
    read_at = clock.monotonic()
    return Look(line_ids, await of_lines(conn, line_ids), read_at)


async def of_lines(conn: Connection, line_ids: Sequence[int | None]) -> dict[int | None, LineBudgets]:
    """The budgets of each line that has any."""
    found: dict[int | None, LineBudgets] = {}
    values = {"line_ids": [line_id for line_id in line_ids if line_id is not None]}
    for row in await (await conn.execute(sql.BUDGETS_OF_LINES, values)).fetchall():
        line_id, tenant_id, price_in, price_cached, price_out, currency, long_answer = row[:_LINE_COLUMNS]
        price = None if price_in is None else TokenPrice(price_in, price_cached, price_out, currency)
        known = found.get(line_id)
        budgets = (*(known.budgets if known else ()), of_row(row[_LINE_COLUMNS:]))
        found[line_id] = LineBudgets(line_id, tenant_id, budgets, price, long_answer)
    return found
