"""What synchronous requests of this process may spend: a reservation in each budget, made before it is needed.

It is part of what its budget has reserved, so that processes cannot spend the same money, and is refilled when less than half is
left. A request that finds too little waits for PATIENCE_SECONDS, and is then refused. While the database is away, requests go on
unless a budget reserves the maximum. The reservation of a process that has died returns after 60 seconds; what it had not
reported, at most the use of REPORT_SECONDS, is lost, as in `sync_usage`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any
from uuid import uuid4

import orjson
import structlog
from tenacity import retry, retry_if_result, wait_random_exponential

from app import clock
from app.budgets import rules, service, sql
from app.budgets.rules import Budget, Synchronous, Unit
from app.causes import cause
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.errors import BudgetSpent
from app.metering import money
from app.metering.lines import LineParts
from app.metering.money import TokenPrice

PATIENCE_SECONDS = 0.25
AWAY_SECONDS = 6.0  # a database that has not answered for so long is away; usually it is known before
REPORT_SECONDS = 1.0
_SECONDS = 10  # of use, from which the size of a reservation is estimated
_STILL_HERE_SECONDS = 20.0
DRY_SECONDS = 1.0  # a budget that had too little is not asked again for so long, by requests that need as much
_POLL_SECONDS = 0.05

_log = structlog.get_logger("budgets")


@dataclass(frozen=True, slots=True)
class CallSize:
    """The size of a request: tokens of its prompt, those of its answers that are expected, the most; and its body.

    `window`: the most that the prompt and one answer have together. `answers`: their number.
    """

    prompt: int
    expected: int
    most: int
    body: Mapping[str, Any]
    window: int = rules.UNLIMITED
    answers: int = 1

    def largest(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Prompt and answers, where these are as long as they can be, and where the prompt is. No other sizes cost more."""
        size = len(orjson.dumps(self.body))
        short = max(self.prompt, min(size, self.window - self.most // self.answers))
        long = max(self.prompt, min(size, self.window))
        return (short, self.most), (long, min(self.most, self.answers * max(0, self.window - long)))


@dataclass(slots=True, eq=False)
class Reservation:
    """This process's part of one budget. `amount`: as stored. `used`: not reported yet; `sent`: the part that is on its way.

    `open`: reserved for requests in an engine; `beyond`: what these can cost beyond that; `told`: the part of it that the last
    report said; `waiting`: wanted by requests that wait for money. `dry_need`: what was not there, until `dry_until`. `gone`: its
    budget was removed, or counts something else, so it limits nothing. `successor`: what replaces it.
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
    dry_need: int = 0
    dry_until: float = 0.0
    away: bool = False
    gone: bool = False
    successor: "Reservation | None" = None
    recent: deque[int] = field(default_factory=lambda: deque([0], maxlen=_SECONDS))
    task: asyncio.Task[None] | None = None
    reporting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def free(self) -> int:
        """What can be reserved for a further request."""
        return self.amount - self.used - self.open

    @property
    def wanted(self) -> int:
        """Its size beside what is reserved for requests: twice the use of the last seconds, at most a hundredth of the budget.
        Nothing where calls need none.
        """
        if self.budget.synchronous == Synchronous.ALERT:
            return 0
        return min(2 * sum(self.recent), self.budget.max // 100)

    @property
    def low(self) -> bool:
        """Whether it should be refilled."""
        return self.free < self.wanted / 2

    @property
    def is_over(self) -> bool:
        """Whether the window of its budget has ended. Whoever reports turns it."""
        return self.budget.window_to is not None and self.budget.window_to <= clock.now()

    @property
    def latest(self) -> "Reservation":
        """What requests use now that began with this one."""
        return self.successor.latest if self.successor else self

    def lacks(self, need: int) -> bool:
        """Whether a request that needs so much has to wait. One that the budget does not count never has to."""
        return need > 0 and not self.gone and self.free < need

    def is_dry(self, need: int) -> bool:
        """Whether it was found a moment ago that there is less than this."""
        return need >= self.dry_need and clock.monotonic() < self.dry_until

    def note_dry(self, need: int) -> None:
        """Note that so much was not there."""
        self.dry_need, self.dry_until = need, clock.monotonic() + DRY_SECONDS

    def following(self, budget: Budget) -> "Reservation":
        """The reservation for the budget as it is now: this one, unless the amounts are in another unit."""
        if budget.counts != self.budget.counts:
            self.successor = Reservation(budget)
            return self.successor
        tentative = min(self.budget.tentative, budget.reserved)  # which is not read every second
        self.budget, self.gone = replace(budget, tentative=tentative), False
        return self

    def spend(self, amount: int) -> None:
        """Count what a request has used."""
        self.used += amount
        self.recent[-1] += amount


@dataclass(slots=True)
class ReservedCall:
    """What is reserved for one request, by budget. `settle` it once its usage is known."""

    line: LineParts | None = None
    amounts: list[tuple[Reservation, int, int]] = field(default_factory=list)

    def add(self, part: Reservation, amount: int, beyond: int) -> None:
        """Take so much for the request, which can cost `beyond` more."""
        part.open += amount
        part.beyond += beyond
        self.amounts.append((part, amount, beyond))

    def settle(self, prompt: int, cached: int, output: int) -> None:
        """Count what the request has used, and release the rest. A second call has no effect."""
        for part, amount, beyond in self.amounts:
            part.open -= amount
            part.beyond -= beyond
            now = part.latest
            now.spend(_amount(now.budget, self.line, prompt, cached, output))
        self.amounts.clear()


class CallBudgets:
    """The reservations of one process. Run `keeping` around its life."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._parts: dict[int, Reservation] = {}
        self._by_tenant: dict[int, list[Reservation]] = {}

    @asynccontextmanager
    async def reserving(self, line: LineParts | None, size: CallSize | None) -> AsyncIterator[ReservedCall]:
        """Reserve money for a request. What was not settled at the end of the block is released. Raises BudgetSpent."""
        mine = self._by_tenant.get(line.tenant_id) if line else None
        if not mine or line is None or size is None:
            yield ReservedCall()
            return
        call = ReservedCall(line)
        needs = [
            (part, _need(part.budget, line, size)) for part in mine if part.budget.covers(line.key_id, line.workflow)
        ]
        if any(part.lacks(need) for part, need in needs):
            await self._wait(needs)
        for part, need in needs:
            most = _amount(part.budget, line, size.prompt, 0, size.most)
            call.add(part, need, max(0, most - need) if need else 0)
            if part.low:
                self._report_soon(part)
        try:
            yield call
        finally:
            call.settle(0, 0, 0)

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
            for part in self._parts.values():
                part.recent = deque([0], maxlen=_SECONDS)  # what is left goes back
                await self._report(part)

    async def refresh(self) -> None:
        """Read the budgets. Raises errors of the database."""
        async with self._database.relaxed() as conn:
            found = await service.every(conn)
        known = self._parts
        self._parts = {
            budget.budget_id: part.following(budget) if (part := known.get(budget.budget_id)) else Reservation(budget)
            for budget in found
        }
        by_tenant: dict[int, list[Reservation]] = {}
        for part in self._parts.values():
            by_tenant.setdefault(part.budget.tenant_id, []).append(part)
        self._by_tenant = by_tenant

    def used(self, tenant_id: int, key_id: str, workflow: str, queued: bool, currency: str | None) -> float:
        """Per cent of the fullest budget of such requests that is spent, as this process knows it."""
        mine = (part.budget for part in self._by_tenant.get(tenant_id, ()))
        return rules.spent_share(mine, key_id, workflow, currency, queued=queued)

    async def _wait(self, needs: Sequence[tuple[Reservation, int]]) -> None:
        """Wait until every budget has what is needed. Raises BudgetSpent."""
        for part, need in needs:
            if part.lacks(need) and part.is_dry(need):
                raise rules.refusal(part.budget, need, clock.now())
        for part, need in needs:
            part.waiting += need
        try:
            began, grown = clock.monotonic(), False
            while short := {part: need for part, need in needs if part.lacks(need)}:
                waited = clock.monotonic() - began
                asking = [part for part in short if not part.away]
                unanswered = any(part.reported_at < began for part in asking)
                if not asking or waited > (AWAY_SECONDS if unanswered or grown else PATIENCE_SECONDS):
                    return self._refuse(short, away=unanswered)
                before = sum(part.amount for part in asking)
                await asyncio.wait({self._report_soon(part) for part in asking}, timeout=AWAY_SECONDS - waited)
                grown = sum(part.amount for part in asking) > before  # a report takes back only so many chunks
                if any(part.lacks(need) for part, need in needs):
                    await asyncio.sleep(_POLL_SECONDS)
        finally:
            for part, need in needs:
                part.waiting -= need

    def _refuse(self, short: Mapping[Reservation, int], *, away: bool) -> None:
        """Raise BudgetSpent, unless only the database is away and no budget reserves the maximum."""
        for part, need in short.items():
            if not (away or part.away):
                part.note_dry(need)
                raise rules.refusal(part.budget, need, clock.now())
            if part.budget.reserves_maximum:
                raise BudgetSpent(
                    f"Budget {part.budget.name!r} reserves the maximum, and the database that has it is away; try again later",
                    retry_after=rules.RETRY_SECONDS,
                    again=True,
                )

    def _report_soon(self, part: Reservation) -> asyncio.Task[None]:
        """Refill a reservation in the background, unless that is under way."""
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
            for part in list(self._parts.values()):
                idle = (
                    part.free == part.wanted
                    and now - part.reported_at < _STILL_HERE_SECONDS
                    and part.beyond == part.told
                    and not part.is_over
                )
                if part.used or part.low or not idle:
                    await self._report_soon(part)
                part.recent.append(0)

    async def _report(self, part: Reservation) -> None:
        """Report what was used, and reserve as much as is wanted. Does nothing while the database is away."""
        async with part.reporting:
            await self._write(part)

    async def _write(self, part: Reservation) -> None:
        if part.sent is None and not (
            part.used or part.amount or part.waiting or part.wanted or part.beyond or part.is_over
        ):
            part.reported_at = clock.monotonic()
            return
        part.sent = part.used if part.sent is None else part.sent
        budget, needed = part.budget, part.open + part.waiting
        number, wanted, beyond = part.number + 1, part.wanted, part.beyond
        report = Report(budget.budget_id, part.writer, number, part.sent, needed, wanted, budget.counts, beyond)
        try:
            changed = await write(self._database, report)
        except TRANSIENT as error:
            if not part.away:
                _log.warning("budget.not_reported", budget=part.budget.name, error=cause(error))
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


def _need(budget: Budget, line: LineParts, size: CallSize) -> int:
    if budget.synchronous == Synchronous.ALERT:
        return 0
    if not budget.reserves_maximum:
        return _amount(budget, line, size.prompt, 0, size.expected)
    return max(_amount(budget, line, prompt, 0, output) for prompt, output in size.largest())


def _amount(budget: Budget, line: LineParts | None, prompt: int, cached: int, output: int) -> int:
    """Tokens of a line in the unit of a budget."""
    if budget.unit == Unit.TOKENS:
        return prompt + output
    if line is None or line.price_in is None or line.currency != budget.currency:
        return 0
    price = TokenPrice(line.price_in, line.price_cached or 0, line.price_out or 0)
    return money.cost(prompt, cached, output, price)


# ---------------------------------------------------------------- reports


@dataclass(frozen=True, slots=True)
class Report:
    """What a process has used since its last report, and what it needs: `needed` now, `wanted` beside it.

    `number`: of the report, from 1. A report whose commit had an unknown outcome is repeated with its number. `counts`: what
    the amounts are of, as the process knows the budget. `beyond`: what its requests in an engine can cost beyond what is
    reserved.
    """

    budget_id: int
    writer: str
    number: int
    used: int
    needed: int
    wanted: int
    counts: tuple[Unit, str | None]
    beyond: int = 0


@dataclass(frozen=True, slots=True)
class Changed:
    """The reservation after a report. `budget` None: the report had been stored before."""

    amount: int
    budget: Budget | None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a report makes of its budget and reservation, if the budget is still in this version. `missing`: what chunks that no
    worker has yet have to give back. `over`: its window has ended.
    """

    budget: Budget
    version: str
    before: int
    amount: int
    missing: int
    over: bool


class _Unstored(Enum):
    """Why a report was not stored: its budget has changed since it was read, or the window of the budget is over."""

    CHANGED, OVER = 1, 2


async def write(database: Database, report: Report) -> Changed | None:
    """Store a report, once: what was used is spent, and as much of what it needs is reserved as is available.

    If the window of the budget is over, the next one begins. It is one statement, so nobody waits for a process that stops in the
    middle; the steward writes the events. None: the budget does not exist any more, or its unit or currency has changed.
    """
    stored = await _stored(database, report, turns=True)
    if stored is _Unstored.OVER:
        await service.turn(database)
        stored = await _stored(database, report, turns=False)  # turned once: that skips a budget that is locked
    assert not isinstance(stored, _Unstored)
    return stored


@retry(retry=retry_if_result(lambda stored: stored is _Unstored.CHANGED), wait=wait_random_exponential(0.005, max=0.1))
async def _stored(database: Database, report: Report, *, turns: bool) -> Changed | _Unstored | None:
    """The reservation after the report. It is planned again while others change its budget in between."""
    async with database.durable() as conn:
        plan = await _plan(conn, report)
        if not isinstance(plan, _Plan):
            return plan
        if plan.over and turns:
            return _Unstored.OVER
        return await _store(conn, report, plan) or _Unstored.CHANGED


async def _plan(conn: Connection, report: Report) -> _Plan | Changed | None:
    values = {"budget_id": report.budget_id, "writer": report.writer}
    row = await (await conn.execute(sql.READ_RESERVATION, values)).fetchone()
    if row is None or (budget := service.of_row(row[:-5])).counts != report.counts:
        return None
    over, version, before, number, together = row[-5:]
    if number == report.number:
        return Changed(before, None)
    amount = new_amount(budget, report, before, together)
    missing = max(0, report.needed - amount) if budget.tentative else 0
    return _Plan(budget, version, before, amount, missing, bool(over))


async def _store(conn: Connection, report: Report, plan: _Plan) -> Changed | None:
    """The reservation and the budget as they are now. None: it has changed since it was read, and nothing was stored."""
    values: dict[str, object] = {
        "budget_id": report.budget_id,
        "writer": report.writer,
        "number": report.number,
        "beyond": report.beyond,
    }
    values |= {"used": report.used, "change": plan.amount - plan.before, "amount": plan.amount, "version": plan.version}
    if not plan.missing:
        row = await (await conn.execute(sql.REPORT, values)).fetchone()
        tentative = plan.budget.tentative
        return None if row is None else Changed(plan.amount, replace(service.of_row(row), tentative=tentative))
    values |= {"missing": plan.missing, "tenant_id": plan.budget.tenant_id, "unit": plan.budget.unit}
    row = await (await conn.execute(sql.REPORT_TAKING, values)).fetchone()
    return None if row is None else Changed(plan.amount + row[-1], service.of_row(row[:-1]))


def new_amount(budget: Budget, report: Report, before: int, together: int) -> int:
    """The amount of a process that had `before`, while all of the budget have `together`. Pure.

    It never takes more than is free. What is wanted but not needed now comes from the part that processes may reserve together.
    """
    left = max(0, before - report.used)
    room = max(0, rules.most_for_calls(budget.max) - (together - before) - report.needed)
    target = report.needed + min(report.wanted, room)
    if target <= left:
        return target
    free = budget.max - (budget.spent + report.used) - (budget.reserved - before + left)
    return left + max(0, min(target - left, free))
