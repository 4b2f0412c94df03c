"""Budgets: their rows, their windows, what is spent and reserved, and the verbs of their owners. See `sql` for their locks.
Queued work follows a changed budget within a round of the steward (`queued`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, cast

from app import clock
from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record, changed
from app.budgets import rules, sql, terms
from app.budgets.rules import (
    COLUMNS,
    TERMS,
    Budget,
    LineBudgets,
    Owner,
    Queued,
    Reserve,
    Scope,
    Synchronous,
    Unit,
)
from app.changes import service as changes
from app.changes.kinds import ChangeKind
from app.db.pool import Connection, Database
from app.db.pooled_connection import PooledConnection
from app.errors import BadInput, Conflict, NotFound, NotOwner
from app.events import NO_REQUEST, BudgetData, EventKind
from app.metering import windows
from app.metering.money import TokenPrice
from app.quantities import moment
from app.queue import settling, settling_sql
from app.tenants import service as tenants
from app.webhooks import emitter

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
        "owner": Owner,
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


async def versions(conn: Connection, budget_ids: Sequence[int]) -> tuple[list[Budget], list[str]]:
    """Those of these budgets that exist, and the version that each was read in."""
    rows = await (await conn.execute(sql.VERSIONS, {"ids": list(budget_ids)})).fetchall()
    return [of_row(row[:-1]) for row in rows], [row[-1] for row in rows]


async def named(conn: Connection, tenant_id: int, name: str) -> Budget:
    """The budget of this name. Raises NotFound."""
    found = await of_name(conn, tenant_id, name)
    if found is None:
        raise NotFound(f"There is no budget {name!r} in this account")
    return found


async def of_name(conn: Connection, tenant_id: int, name: str) -> Budget | None:
    """The budget of this name, if there is one."""
    row = await (await conn.execute(sql.ONE, {"tenant_id": tenant_id, "name": name})).fetchone()
    return None if row is None else of_row(row)


# ---------------------------------------------------------------- the verbs of owners


async def put(
    conn: Connection,
    tenant_id: int,
    name: str,
    given: Mapping[str, Any],
    *,
    by: Owner = Owner.ACCOUNT,
    where: str = "",
    only_new: bool = False,
) -> None:
    """Add the budget of this name; change it, unless `only_new`. `by` owns it from then on. Call inside a transaction, with whose
    commit it is stored.

    What it has spent stays, unless it now counts something else. If its maximum changes, the alerts above what is spent can come
    again. Raises BadInput, Conflict, NotOwner.
    """
    wanted = terms.parse(name, given, where=where)
    if wanted.scope == Scope.KEY and not await tenants.has_key(conn, tenant_id, wanted.scope_value):
        raise BadInput(
            f"{where}key: the account has no key {wanted.scope_value[:64]!r}; give the id that `slackwater key list` shows",
            param="key",
        )
    await conn.execute(sql.ONE_AT_A_TIME, {"tenant_id": tenant_id})
    before = await of_name(conn, tenant_id, name)
    if only_new and before is not None:
        problem = f"the account has a budget {name!r}; change that one, or take another name"
        raise Conflict(f"{where}name: {problem}", param="name")
    _check_owner(before, by)
    if before is not None and None not in (before.currency, wanted.currency) and before.currency != wanted.currency:
        keeps = f"budget {name!r} counts what costs {before.currency}, and keeps its currency"
        field, how = (
            "--max-cost" if where else "max_cost",
            f"give the amount in {before.currency}, or set another budget",
        )
        raise BadInput(f"{field}: {keeps}; {how}", param="max_cost")
    row = await (await conn.execute(sql.COUNT, {"tenant_id": tenant_id})).fetchone()
    if before is None and row is not None and row[0] >= MOST_BUDGETS:
        raise Conflict(f"{where}{name}: the account has {MOST_BUDGETS} budgets, which is the limit; delete one")
    [(now,)] = await (await conn.execute(sql.NOW)).fetchall()
    begin, end = windows.window(wanted.period, wanted.tz, now)
    _store(conn, Budget(**asdict(wanted), tenant_id=tenant_id, owner=by, window_from=begin, window_to=end), before)
    old, new = changed(_terms(before), _terms(Budget(**asdict(wanted), owner=by)))
    if new:
        account = await tenants.account_id_of(conn, tenant_id)
        record = Record(Act.BUDGET_SET, name, account, before=None if before is None else old, after=new)
        await log.record(conn, record)


async def amend(
    conn: Connection,
    tenant_id: int,
    name: str,
    given: Mapping[str, Any],
    *,
    without: Collection[str] = (),
    by: Owner = Owner.ACCOUNT,
    where: str = "",
) -> Budget | None:
    """As `put`, but a budget that exists keeps the terms that are not given, except those in `without`. Returns it as it was."""
    terms.check_name(name)
    await conn.execute(sql.ONE_AT_A_TIME, {"tenant_id": tenant_id})
    before = await of_name(conn, tenant_id, name)
    wanted = given if before is None else terms.kept(before, given, without)
    await put(conn, tenant_id, name, wanted, by=by, where=where)
    return before


def _store(conn: Connection, budget: Budget, before: Budget | None) -> None:
    values = {name: getattr(budget, name) for name in (*TERMS, "owner", "tenant_id", "window_from", "window_to")}
    writes = Writes.of(conn)
    writes.add(settling_sql.ONE_AT_A_TIME, {})  # so that no result is counted between the ledger and the new budget
    writes.add(sql.PUT, values | {"alerts_at": list(budget.alerts_at)})
    anew = before is None or before.window_from != budget.window_from
    if before is None or anew or any(getattr(before, name) != getattr(budget, name) for name in _COUNTED):
        writes.add(sql.FROM_LEDGER, values)
    if before is not None and before.counts != budget.counts:
        writes.add(sql.EMPTY, values)
        writes.add(sql.RECOUNT, {"tenant_id": budget.tenant_id, "only": budget.name})


def _check_owner(budget: Budget | None, by: Owner) -> None:
    if budget is not None and not budget.changed_by(by):
        raise NotOwner(
            f"Budget {budget.name!r} belongs to the operator of this installation; a key of the account cannot change or "
            "remove it"
        )


async def remove(conn: Connection, tenant_id: int, name: str, *, by: Owner = Owner.ACCOUNT) -> None:
    """Remove a budget, with the commit. Work that waited for its money goes on. Raises NotFound, NotOwner."""
    await conn.execute(sql.ONE_AT_A_TIME, {"tenant_id": tenant_id})
    before = await named(conn, tenant_id, name)
    _check_owner(before, by)
    Writes.of(conn).add(sql.DELETE, {"tenant_id": tenant_id, "name": name})
    account = await tenants.account_id_of(conn, tenant_id)
    await log.record(conn, Record(Act.BUDGET_REMOVE, name, account, before=_terms(before)))


async def forget(conn: Connection, tenant_id: int) -> None:
    """Remove the budgets of a closed account. Call outside of a transaction: the account's row can go only after them."""
    await conn.execute(sql.FORGET, {"tenant_id": tenant_id})


def _terms(budget: Budget | None) -> dict[str, Any]:
    """What was set of a budget, without what it counts."""
    shown = {} if budget is None else terms.view(budget)
    return {name: value for name, value in shown.items() if name not in terms.COUNTED}


# ---------------------------------------------------------------- what is spent and reserved


class Writes:
    """What a transaction changes of budgets. All of it is sent with its commit, since calls wait for them."""

    rank = 0

    def __init__(self) -> None:
        self._statements: list[tuple[str, Mapping[str, object]]] = []

    @classmethod
    def of(cls, conn: Connection) -> "Writes":
        """Those of the open transaction. Raises RuntimeError outside of one."""
        return cast(PooledConnection, conn).at_commit(cls)

    def add(self, statement: str, values: Mapping[str, object]) -> None:
        """Send this, too. Where one statement changes several budgets, it has to be the only one."""
        self._statements.append((statement, values))

    def statements(self) -> Sequence[tuple[str, Mapping[str, object]]]:
        """All, in the order in which they were added."""
        return self._statements


@dataclass(frozen=True, slots=True)
class Turn:
    """The next window of a budget. `ended`: the begin of the present one."""

    budget_id: int
    ended: datetime
    begins: datetime
    ends: datetime | None


async def due(conn: Connection) -> list[Turn]:
    """The next windows of the budgets whose windows have ended."""
    found = []
    for row in await (await conn.execute(sql.DUE)).fetchall():
        budget, now = of_row(row[:-1]), row[-1]
        assert budget.window_from is not None
        found.append(Turn(budget.budget_id, budget.window_from, *windows.window(budget.period, budget.tz, now)))
    return found


async def turn(database: Database) -> bool:
    """Begin the next window of every budget whose window has ended. Returns whether there was one."""
    async with database.relaxed() as conn:
        ended = await due(conn)
        for each in ended:
            values = {"budget_id": each.budget_id, "before": each.ended}
            await conn.execute(sql.TURN, values | {"window_from": each.begins, "window_to": each.ends})
    return bool(ended)


async def recount(database: Database) -> list[Drift]:
    """Correct what budgets have reserved, and return to them what dead processes had: those that have not written for
    DEAD_SECONDS. A budget that somebody else changes is left for the next call. The number of a process's last report is kept for
    REPORTS_KEPT_DAYS.
    """
    async with database.relaxed() as conn:
        await conn.execute(sql.FORGET_DEAD, {"days": REPORTS_KEPT_DAYS})
        values = {"seconds": DEAD_SECONDS}
        for (budget_id,) in await (await conn.execute(sql.DEAD, values)).fetchall():
            await conn.execute(sql.RETURN_DEAD, values | {"budget_id": budget_id})
        rows = await (await conn.execute(sql.RECOUNT, {"tenant_id": None, "only": None})).fetchall()
    return [Drift(*row) for row in rows]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """The gauges of budgets and of what waits for them: (name, account/budget or model, value)."""
    return [tuple(row) for row in await (await conn.execute(sql.GAUGES, {"dead_seconds": DEAD_SECONDS})).fetchall()]


# ---------------------------------------------------------------- events, each in the transaction that notes that it was written


async def note(database: Database) -> None:
    """Write the events of the thresholds that budgets have reached, once in a window each, and of those that are renewed. A verb
    of the leading steward.
    """
    async with database.relaxed() as conn:
        if not await (await conn.execute(sql.TO_NOTE)).fetchall():
            return
    async with database.transaction() as conn:
        await settling.exclusively(conn)
        noted = []
        for row in await (await conn.execute(sql.TO_NOTE)).fetchall():
            budget = of_row(row)
            if budget.renewed:
                budget = await _note_renewed(conn, budget)
            for percent in rules.crossed(budget):
                budget = await _note_reached(conn, budget, percent)
            noted.append(budget)
        _noted(conn, noted)


async def note_spent(database: Database, short: Sequence[Budget]) -> None:
    """Write that the rest of these budgets is too small for the work that waits, unless that was written in this window. A verb
    of the leading steward.
    """
    if all(budget.spent_noted for budget in short):
        return
    async with database.transaction() as conn:
        await settling.exclusively(conn)
        found = await of_ids(conn, [budget.budget_id for budget in short])
        new = [budget for budget in found if not budget.spent_noted]
        _noted(conn, [await _note_reached(conn, budget, rules.SPENT) for budget in new])


async def note_diverted(conn: Connection, budget: Budget, items: int, model: str) -> None:
    """Write that work was diverted, once in a window for each model."""
    if model not in budget.diverted_to:
        Writes.of(conn).add(sql.DIVERTED, {"budget_id": budget.budget_id, "model": model})
        message = f"{_used(budget)} {items:,} waiting items now use {model}, and more may follow."
        await _emit(conn, budget, EventKind.BUDGET_DIVERTED, budget.percent, message)


def _noted(conn: Connection, budgets: Sequence[Budget]) -> None:
    values = {
        "ids": [budget.budget_id for budget in budgets],
        "windows": [budget.window_from for budget in budgets],
        "notified": [budget.notified for budget in budgets],
        "spent_in": [budget.spent_in for budget in budgets],
    }
    if budgets:
        Writes.of(conn).add(sql.NOTED, values)


async def _note_renewed(conn: Connection, budget: Budget) -> Budget:
    message = f"Budget {budget.name} is renewed: {budget.shown(budget.max)} for the next {budget.period}."
    await _emit(conn, budget, EventKind.BUDGET_RENEWED, 0, message)
    await _note(conn, budget, ChangeKind.BUDGET_RENEWED, message)
    return replace(budget, spent_in=None)


async def _note_reached(conn: Connection, budget: Budget, percent: int) -> Budget:
    if percent < rules.SPENT:
        await _emit(conn, budget, EventKind.BUDGET_ALERT, percent, _used(budget))
        return replace(budget, notified=max(percent, budget.notified))
    until = f"until {moment(budget.window_to)}" if budget.window_to else "until its maximum is raised"
    waits = {Queued.WAIT: f"queued work waits {until}", Queued.REFUSE: f"new batches are refused {until}"}
    then = waits.get(budget.queued, "queued work goes on")
    await _emit(conn, budget, EventKind.BUDGET_SPENT, budget.percent, f"{_used(budget)} {then[0].upper()}{then[1:]}.")
    spent = budget.of_max(budget.spent) + (" spent" if budget.spent < budget.max else "")
    await _note(conn, budget, ChangeKind.BUDGET_SPENT, f"{spent}; {then}")
    return replace(budget, spent_in=budget.window_from)


def _used(budget: Budget) -> str:
    return f"Budget {budget.name} has spent {budget.of_max(budget.spent)}."


async def _emit(conn: Connection, budget: Budget, kind: EventKind, percent: int, message: str) -> None:
    account_id = await tenants.account_id_of(conn, budget.tenant_id)
    data = BudgetData(
        request_id=NO_REQUEST, account_id=account_id, budget=budget.name, percent=percent, message=message
    )
    await emitter.emit(conn, tenant_id=budget.tenant_id, kind=kind, model="", batch_id=None, run=None, data=data)


async def _note(conn: Connection, budget: Budget, kind: ChangeKind, message: str) -> None:
    """Write it to the timeline of the installation, too."""
    facts = {"budget": budget.name, "percent": budget.percent, "message": message}
    await changes.record(conn, kind, budget.name, facts, tenant_id=budget.tenant_id)


# ---------------------------------------------------------------- the budgets of queued work


class BudgetsChanged(Exception):
    """Budgets were changed since they were read: cut the chunks anew."""


@dataclass(frozen=True, slots=True)
class Look:
    """The budgets of those lines that have any, as they were at `read_at`, in seconds of the monotonic clock."""

    line_ids: Sequence[int | None]
    of_line: Mapping[int | None, LineBudgets]
    read_at: float

    def accept(self) -> None:
        """Call where new work of these lines is accepted. Raises BudgetSpent where a budget at its limit refuses it."""
        for budget in (budget for under in self.of_line.values() for budget in under.budgets):
            if budget.queued == Queued.REFUSE and budget.at_limit:
                raise rules.refusal_of_new(budget, clock.now())

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
