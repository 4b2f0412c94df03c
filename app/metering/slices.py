"""What synchronous requests of this process may spend: a slice of each budget, taken from the database before it is needed.

A slice is part of what its budget holds, so that processes cannot spend the same money. It is refilled when less than half is
left. A request that finds its slice dry waits for PATIENCE_SECONDS, and is then refused. While the database is away, requests
go on unless a budget is strict. The slice of a process that has died is returned by the steward after 60 seconds; what it had
not reported, at most the use of REPORT_SECONDS, is lost, as in `sync_usage`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import orjson
import structlog

from app import clock
from app.db.pool import Database
from app.db.transient_errors import TRANSIENT
from app.errors import BudgetSpent
from app.metering import budget_rules, budgets, money, slice_rows
from app.metering.budget_rules import Budget, Scope, Unit
from app.metering.lines import LineParts
from app.metering.money import TokenPrice
from app.metering.slice_rows import OnChange, Report

PATIENCE_SECONDS = 0.25
AWAY_SECONDS = 6.0  # a database that has not answered for so long is away; usually it is known before
REPORT_SECONDS = 1.0
_SECONDS = 10  # of use, from which the size of a slice is estimated
_STILL_HERE_SECONDS = 20.0
_POLL_SECONDS = 0.01

_log = structlog.get_logger("slices")


@dataclass(frozen=True, slots=True)
class CallSize:
    """The size of a request: tokens of its prompt, those of its answer that are likely at most, the most; and its body."""

    prompt: int
    likely: int
    most: int
    body: Mapping[str, Any]

    def tokens(self, *, strict: bool) -> tuple[int, int]:
        """Prompt and answer, as a hold counts them."""
        return (len(orjson.dumps(self.body)), self.most) if strict else (self.prompt, self.likely)


@dataclass(slots=True)
class Slice:
    """This process's part of one budget. `amount`: as stored. `used`: not reported yet; `sent`: the part that is on its way.

    `open`: held by requests in an engine; `beyond`: what these can cost beyond that; `told`: the part of it that the last report
    said; `waiting`: wanted by requests that wait for money. `gone`: its budget was removed, or
    counts something else, so it limits nothing. `successor`: what replaces it.
    """

    budget: Budget
    writer: str = field(default_factory=lambda: uuid4().hex)
    amount: int = 0
    used: int = 0
    open: int = 0
    beyond: int = 0
    told: int = 0
    waiting: int = 0
    number: int = 0
    sent: int | None = None
    reported_at: float = 0.0
    away: bool = False
    gone: bool = False
    successor: "Slice | None" = None
    recent: deque[int] = field(default_factory=lambda: deque([0], maxlen=_SECONDS))
    task: asyncio.Task[None] | None = None
    reporting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def free(self) -> int:
        """What can be held by a further request."""
        return self.amount - self.used - self.open

    @property
    def wanted(self) -> int:
        """Its size beside what requests hold: twice the use of the last seconds, at most a hundredth of the budget."""
        return min(2 * sum(self.recent), self.budget.max // 100)

    @property
    def low(self) -> bool:
        """Whether it should be refilled."""
        return self.free < self.wanted / 2

    @property
    def latest(self) -> "Slice":
        """What requests use now that began with this slice."""
        return self.successor.latest if self.successor else self

    def lacks(self, need: int) -> bool:
        """Whether a request that needs so much has to wait."""
        return not self.gone and self.free < need

    def following(self, budget: Budget) -> "Slice":
        """The slice for the budget as it is now: this one, unless the amounts are in another unit."""
        if budget.counts != self.budget.counts:
            self.successor = Slice(budget)
            return self.successor
        self.budget, self.gone = budget, False
        return self

    def spend(self, amount: int) -> None:
        """Count what a request has used."""
        self.used += amount
        self.recent[-1] += amount


@dataclass(slots=True)
class CallHold:
    """What is held for one request, by slice. `settle` it once its usage is known."""

    line: LineParts | None = None
    amounts: list[tuple[Slice, int, int]] = field(default_factory=list)

    def add(self, part: Slice, amount: int, beyond: int) -> None:
        """Hold so much of a slice for the request, which can cost `beyond` more."""
        part.open += amount
        part.beyond += beyond
        self.amounts.append((part, amount, beyond))

    def settle(self, prompt: int, cached: int, output: int) -> None:
        """Count what the request has used, and release the hold. A second call has no effect."""
        for part, amount, beyond in self.amounts:
            part.open -= amount
            part.beyond -= beyond
            now = part.latest
            now.spend(_amount(now.budget, self.line, prompt, cached, output))
        self.amounts.clear()


class Slices:
    """The slices of one process. Run `keeping` around its life. `on_change` writes the events of a budget that has changed."""

    def __init__(self, database: Database, on_change: OnChange) -> None:
        self._database = database
        self._on_change = on_change
        self._slices: dict[int, Slice] = {}
        self._by_tenant: dict[int, list[Slice]] = {}

    @asynccontextmanager
    async def holding(self, line: LineParts | None, size: CallSize | None) -> AsyncIterator[CallHold]:
        """Hold money for a request. What was not settled at the end of the block is released. Raises BudgetSpent."""
        mine = self._by_tenant.get(line.tenant_id) if line else None
        if not mine or line is None or size is None:
            yield CallHold()
            return
        hold = CallHold(line)
        needs = [
            (part, _need(part.budget, line, size)) for part in mine if _counts(part.budget, line.key_id, line.workflow)
        ]
        if any(part.lacks(need) for part, need in needs):
            await self._wait(needs)
        for part, need in needs:
            most = _amount(part.budget, line, size.prompt, 0, size.most)
            hold.add(part, need, max(0, most - need))
            if part.low:
                self._report_soon(part)
        try:
            yield hold
        finally:
            hold.settle(0, 0, 0)

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[None]:
        """Read the budgets and report what was used, once a second and at the end."""
        with suppress(*TRANSIENT):
            await self.refresh()
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            for part in self._slices.values():
                part.recent = deque([0], maxlen=_SECONDS)  # what is left goes back
                await self._report(part)

    async def refresh(self) -> None:
        """Read the budgets. Raises errors of the database."""
        async with self._database.relaxed() as conn:
            found = await budgets.every(conn)
        known = self._slices
        self._slices = {
            budget.budget_id: part.following(budget) if (part := known.get(budget.budget_id)) else Slice(budget)
            for budget in found
        }
        by_tenant: dict[int, list[Slice]] = {}
        for part in self._slices.values():
            by_tenant.setdefault(part.budget.tenant_id, []).append(part)
        self._by_tenant = by_tenant

    def used(self, tenant_id: int, key_id: str, workflow: str) -> int:
        """Per cent of the fullest budget of such requests that is spent, as this process knows it."""
        mine = [part.budget for part in self._by_tenant.get(tenant_id, ()) if _counts(part.budget, key_id, workflow)]
        return max((budget.percent for budget in mine), default=0)

    async def _wait(self, needs: Sequence[tuple[Slice, int]]) -> None:
        """Wait until every slice has what is needed. Raises BudgetSpent."""
        for part, need in needs:
            part.waiting += need
        try:
            began = clock.monotonic()
            while short := [part for part, need in needs if part.lacks(need)]:
                waited = clock.monotonic() - began
                asking = [part for part in short if not part.away]
                unanswered = any(part.reported_at < began for part in asking)
                if not asking or waited > (AWAY_SECONDS if unanswered else PATIENCE_SECONDS):
                    return self._refuse(short, away=unanswered)
                await asyncio.wait({self._report_soon(part) for part in asking}, timeout=AWAY_SECONDS - waited)
                if any(part.lacks(need) for part, need in needs):
                    await asyncio.sleep(_POLL_SECONDS)
        finally:
            for part, need in needs:
                part.waiting -= need

    def _refuse(self, short: Sequence[Slice], *, away: bool) -> None:
        """Raise BudgetSpent, unless only the database is away and the budgets are not strict."""
        for part in short:
            if not (away or part.away):
                raise BudgetSpent(budget_rules.spent_message(part.budget))
            if part.budget.strict:
                raise BudgetSpent(
                    f"Budget {part.budget.name!r} is strict, and the database that has it is away; try again later"
                )

    def _report_soon(self, part: Slice) -> asyncio.Task[None]:
        """Refill a slice in the background, unless that is under way."""
        if part.task is None or part.task.done():
            part.task = asyncio.create_task(self._report(part))
        return part.task

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            try:
                await self.refresh()
            except TRANSIENT:
                pass  # a report will say so
            except Exception:  # a row that only a newer version understands; what is known stays in force
                _log.exception("budget.not_read")
            now = clock.monotonic()
            for part in list(self._slices.values()):
                idle = (
                    part.free == part.wanted
                    and now - part.reported_at < _STILL_HERE_SECONDS
                    and part.beyond == part.told
                )
                if part.used or part.low or not idle:
                    await self._report_soon(part)
                part.recent.append(0)

    async def _report(self, part: Slice) -> None:
        """Report what was used, and change the slice to the size that is wanted. Does nothing while the database is away."""
        async with part.reporting:
            await self._write(part)

    async def _write(self, part: Slice) -> None:
        if part.sent is None and not (part.used or part.amount or part.waiting or part.wanted or part.beyond):
            part.reported_at = clock.monotonic()
            return
        part.sent = part.used if part.sent is None else part.sent
        budget, needed = part.budget, part.open + part.waiting
        number, wanted, beyond = part.number + 1, part.wanted, part.beyond
        report = Report(budget.budget_id, part.writer, number, part.sent, needed, wanted, budget.counts, beyond)
        try:
            changed = await slice_rows.write(self._database, report, self._on_change)
        except TRANSIENT as error:
            if not part.away:
                _log.warning("budget.not_reported", budget=part.budget.name, error=str(error).strip())
            part.away = True
            return
        part.away, part.reported_at, part.told = False, clock.monotonic(), beyond
        part.used, part.sent = part.used - part.sent, None
        part.gone = changed is None
        if changed is None:
            part.amount = 0
            return
        part.amount, part.number = changed.amount, report.number
        part.budget = changed.budget or part.budget


def _counts(budget: Budget, key_id: str, workflow: str) -> bool:
    """Whether a budget counts requests of this key and workflow; `budget_sql` says the same for stored lines."""
    match budget.scope:
        case Scope.KEY:
            return budget.scope_value == key_id
        case Scope.WORKFLOW:
            return budget.scope_value == workflow
    return True


def _need(budget: Budget, line: LineParts, size: CallSize) -> int:
    prompt, output = size.tokens(strict=budget.strict)
    return _amount(budget, line, prompt, 0, output)


def _amount(budget: Budget, line: LineParts | None, prompt: int, cached: int, output: int) -> int:
    """Tokens of a line in the unit of a budget."""
    if budget.unit == Unit.TOKENS:
        return prompt + output
    if line is None or line.price_in is None or line.currency != budget.currency:
        return 0
    price = TokenPrice(line.price_in, line.price_cached or 0, line.price_out or 0)
    return money.cost(prompt, cached, output, price)
