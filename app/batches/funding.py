"""The money of queued work: funds waiting chunks, settles what they cost, renews budgets. Between the queue and the budgets.

Only the leading steward calls this. Lock order: batch, usage, budget, chunk, sched.
"""

from dataclasses import dataclass, field

from app import clock
from app.batches import budget_events, diverting
from app.batches.budget_lanes import MOVE_SECONDS
from app.db.pool import Connection, Database
from app.engines.catalogue import Catalogue
from app.engines.model_registry import with_adopted
from app.metering import budget_rules, budgets, lanes, lines
from app.metering.budget_rules import UNLIMITED, Amounts, Budget, Funding, Learned, Unit
from app.metering.budgets import Drift, Held
from app.metering.money import TokenPrice
from app.money_sums import MoneySums
from app.queue import funding
from app.queue.funding import Move, Terms, Waiting

MOVE_AGAIN_SECONDS = 5.0


async def settle(conn: Connection, money: MoneySums) -> None:
    """Settle counted results with the budgets, and write the events. Call in the transaction that counted them, after `book`."""
    await turn(conn)
    await budgets.give_back(conn, money.returned)
    await budget_events.reached(conn, await budgets.spend(conn, money.used))


async def turn(conn: Connection) -> None:
    """Begin the next windows of budgets. Call inside a transaction."""
    await budget_events.renewed(conn, await budgets.turn(conn))


async def recount(conn: Connection) -> list[Drift]:
    """Correct what budgets hold, and return the slices of dead processes. Call inside a transaction. A budget that somebody has
    locked is left for the next recount.
    """
    free = await budgets.lock_all_free(conn)
    await budgets.return_dead_slices(conn, free)
    return await budgets.recount(conn, [Held(*row) for row in await funding.held(conn)], only=free)


async def hold_anew(conn: Connection, budget: Budget) -> None:
    """Let a locked budget whose unit has changed hold, in that unit, what chunks have. Its slices return.

    Call while no results are counted (`settling.exclusively`).
    """
    await budgets.empty_slices(conn, budget.budget_id)
    await budgets.recount(conn, [Held(*row) for row in await funding.held(conn)], only=[budget.budget_id])


async def fund(database: Database, catalogue: Catalogue) -> int:
    """Fund the chunks that wait, the earliest deadline first. Each lane is a transaction. Returns how many became ready or moved.

    A chunk that only waits for other holds to return keeps later lanes from taking the money that it needs.
    """
    async with database.relaxed() as conn:
        places = await funding.waiting(conn)
    blocked: set[int] = set()
    chunks = 0
    for where in places:
        async with database.relaxed() as conn, conn.transaction():
            chunks += await _fund_lane(conn, where, blocked, catalogue)
    return chunks


async def _fund_lane(conn: Connection, where: Waiting, blocked: set[int], catalogue: Catalogue) -> int:
    """Fund one lane. Adds its budgets to `blocked` if its next chunk needs their money, or somebody has locked one. Returns how
    many chunks became ready or moved.
    """
    budget_ids, learned = await lanes.find(conn, where.lane_id)
    if blocked.intersection(budget_ids):
        return 0
    if diverted := await diverting.divert(conn, where, budget_ids, catalogue):
        return diverted  # the rest may have to be diverted, too, before any of it is funded
    locked = await budgets.locked_free(conn, budget_ids)
    if locked is None:
        blocked.update(budget_ids)
        return 0
    return await _fund_from(conn, where, locked, learned, blocked)


async def _fund_from(
    conn: Connection, where: Waiting, locked: list[Budget], learned: Learned, blocked: set[int]
) -> int:
    budget_ids = [budget.budget_id for budget in locked]
    strict = any(budget.strict for budget in locked)
    free, unspent, largest = budget_rules.limits(locked)
    terms = Terms(
        _or_unlimited(free.cost),
        _or_unlimited(free.tokens),
        budget_rules.per_mille(learned, strict=strict),
        strict,
        largest.cost,
        largest.tokens,
    )
    funded = await funding.fund(conn, where, terms)
    if funded.chunks:
        await budgets.hold(conn, budget_ids, funded.cost, funded.tokens)
        return funded.chunks
    first = await funding.first(conn, where, terms)
    needed = Amounts(first.cost, first.tokens) if first else Amounts(None, None)
    if first is None or free.fits(needed):  # the lane has enough ready chunks
        return 0
    if first.n > 1 and not largest.fits(needed):
        await funding.cut(conn, first.chunk_id)
        return 1
    if unspent.fits(needed):
        blocked.update(budget_ids)
    else:
        for budget in locked:
            if (first.cost if budget.unit == Unit.COST else first.tokens) > budget.max - budget.spent:
                await budget_events.spent(conn, budget)
    return 0


def _or_unlimited(amount: int | None) -> int:
    return UNLIMITED if amount is None else amount


@dataclass(slots=True)
class LaneMoves:
    """Moves queued chunks to other lanes when budgets were added, changed or removed. The memory of one steward.

    An account is looked at for MOVE_SECONDS after a change, and then until its last chunk is in its lane: those that a worker
    had at the change may be handed back.
    """

    _scopes: dict[int, tuple[str, ...]] | None = None
    _until: dict[int, float] = field(default_factory=dict)
    _next: float = 0.0

    async def run(self, database: Database, catalogue: Catalogue) -> int:
        """Move what has to be moved. Returns the number of chunks."""
        now = clock.monotonic()
        async with database.relaxed() as conn:
            scopes = await lanes.scopes(conn)
            changed = {account for account in {*scopes, *(self._scopes or {})} if self._differs(account, scopes)}
            if self._scopes is None:
                changed |= await lanes.accounts(conn)
        self._scopes = scopes
        self._until |= dict.fromkeys(changed, now + MOVE_SECONDS)
        if not changed and now < self._next:
            return 0
        self._next = now + MOVE_AGAIN_SECONDS
        moved = 0
        for account, until in sorted(self._until.items()):
            chunks, all_in_place = await move(database, catalogue, account)
            moved += chunks
            if all_in_place and until <= now:
                del self._until[account]
        return moved

    def _differs(self, account: int, scopes: dict[int, tuple[str, ...]]) -> bool:
        return self._scopes is None or self._scopes.get(account) != scopes.get(account)


async def move(database: Database, catalogue: Catalogue, tenant_id: int) -> tuple[int, bool]:
    """Give the chunks of an account that no worker has the lanes of their lines. Returns how many changed, and whether all chunks
    are in the lanes of their lines now.
    """
    async with database.relaxed() as conn:
        models = await with_adopted(conn, catalogue)
        stored = await lines.parts(conn, await funding.lines(conn, tenant_id))
        found = await lanes.of_lines(conn, [line.line_id for line in stored])
        moves = [await _move(conn, line, found.get(line.line_id), models) for line in stored]
        strict_lanes = await lanes.strict(conn, tenant_id)
    moved, changed = 0, 1
    while changed:
        async with database.relaxed() as conn:
            changed = await funding.move(conn, tenant_id, moves, strict_lanes)
        moved += changed
    async with database.relaxed() as conn:
        return moved, not await funding.in_other_lanes(conn, tenant_id, moves)


async def _move(conn: Connection, line: lines.StoredLine, funding_of: Funding | None, models: Catalogue) -> Move:
    if funding_of is None:
        return Move(line.line_id, None, 0)
    price, model = funding_of.price or TokenPrice(0, 0, 0), models.resolve(line.parts.model)
    lane_id, window = await lanes.lane_id(conn, funding_of), model.context_window if model else None
    return Move(line.line_id, lane_id, max(price.input, price.output), price.input, window, funding_of.strict)
