"""The money of queued work. Chunks under budgets are born `unreserved`, and become `ready` once their budgets have reserved what
they are expected to cost.

Only the leading steward reserves, settles and moves. Lock order: batch, usage, budget, chunk, sched.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from operator import add

import structlog

from app import clock
from app.budgets import rules, service, sql
from app.budgets.rules import UNLIMITED, Budget, LineBudgets, Unit
from app.budgets.service import MOVE_SECONDS
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue, Model
from app.engines.model_registry import with_adopted
from app.engines.rate_card import queued_work
from app.engines.service import ensure_pool
from app.metering import lines
from app.metering.lines import LineParts, StoredLine
from app.metering.money import TokenPrice
from app.policy import language, queued
from app.policy import service as policies
from app.policy.problems import PolicyError
from app.policy.queued import QueuedWork
from app.policy.rules import Rule
from app.queue import ready_counts, settling
from app.queue.estimate import Confidence, Estimate, Missing
from app.queue.types import Kind
from app.settings import Settings
from app.tenants import service as tenants

MOST_READY = 128  # chunks of a group of budgets in a pool for which money is reserved and that no worker has yet
TURN_SECONDS = 1.0
RECOUNT_SECONDS = 60.0
MOVE_AGAIN_SECONDS = 5.0
UNCLAIMED_SECONDS = 30.0  # after which others may have what is reserved for a chunk
LATE_SECONDS = 60.0
_MOVED_AT_ONCE = 5000
_NOT_KNOWN = {"workflow": (lines.OTHER,), "task": (lines.OTHER,), "endpoint": ("-", lines.MIXED)}
_log = structlog.get_logger("steward")


@dataclass(frozen=True, slots=True)
class Place:
    """Where chunks wait for money: the ids of their budgets, and their pool."""

    budgets: tuple[int, ...]
    pool_id: int
    tenant_id: int

    @property
    def values(self) -> dict[str, object]:
        """For statements."""
        return {"budgets": list(self.budgets), "pool_id": self.pool_id, "tenant_id": self.tenant_id}


class Steward:
    """The budgets of one database. `run` once a round. `hurries`: the last one changed so many chunks that the next one should
    follow soon, before workers have taken all that is reserved ahead.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._moves = Moves()
        self._known = Known()
        self._turn_at = self._recount_at = 0.0
        self.hurries = False

    async def run(self) -> bool:
        """Move, renew and reserve. Returns whether chunks changed."""
        moved, now, self.hurries = 0, clock.monotonic(), False
        models = catalogue.load(self._settings.models_file)
        if now >= self._turn_at:
            moved = await self._moves.run(self._database, models)
            async with self._database.relaxed() as conn, conn.transaction():
                await service.turn(conn)
            self._turn_at = now + TURN_SECONDS
        if now >= self._recount_at:
            await self._recount()
            self._recount_at = now + RECOUNT_SECONDS
        reserved = await reserve(self._database, models, self._known)
        self.hurries = moved + reserved > MOST_READY // 2
        if moved:
            _log.info("budget.moved", chunks=moved)
        return bool(moved or reserved)

    async def _recount(self) -> None:
        async with self._database.relaxed() as conn, conn.transaction():
            drifts = await service.recount(conn)
        for drift in drifts:
            _log.warning("budget.drift", tenant=drift.tenant_id, budget=drift.name, amount=drift.amount)


# ---------------------------------------------------------------- reserve


@dataclass(slots=True)
class Known:
    """What one steward remembers: the policy that it has read, and where chunks were not claimed while others could start. These
    stand last for LATE_SECONDS.
    """

    policy_id: int = 0
    rules: tuple[Rule, ...] = ()
    until: dict[tuple[tuple[int, ...], int], float] = field(default_factory=dict)

    def note_late(self, budgets: Sequence[int], pool_id: int) -> None:
        """Let what waits there stand last."""
        self.until[tuple(budgets), pool_id] = clock.monotonic() + LATE_SECONDS

    def is_late(self, place: Place) -> bool:
        """Whether it stands last now."""
        return self.until.get((place.budgets, place.pool_id), 0.0) > clock.monotonic()


async def reserve(database: Database, models: Catalogue, known: Known | None = None) -> int:
    """Reserve for the chunks that wait and whose pools have an engine that takes work, the earliest deadline first. Each place
    is a transaction. Returns how many became ready or moved.

    A chunk that only waits for other reservations to return keeps later places from taking the money that it needs. If nothing of
    its place is ready, it takes back what no worker can claim, or has claimed for UNCLAIMED_SECONDS.
    """
    known = known or Known()
    async with database.relaxed() as conn:
        rows = await (await conn.execute(sql.WAITING)).fetchall()
        if not rows:
            return 0
        pools = [pool_id for (pool_id,) in await (await conn.execute(sql.OPEN_POOLS)).fetchall()]
        models = await with_adopted(conn, models)
        in_force = await rules_of_moves(conn, models, known)
    places = [Place(tuple(budgets), pool_id, tenant_id) for budgets, pool_id, tenant_id in rows]
    blocked: set[int] = set()
    chunks = 0
    for place in sorted(places, key=known.is_late):
        async with database.relaxed() as conn, conn.transaction():
            diverted = 0 if blocked.intersection(place.budgets) else await divert(conn, place, models, in_force)
        chunks += diverted
        if diverted or place.pool_id not in pools:
            continue  # the rest may have to be diverted, too, before anything is reserved for it
        async with database.relaxed() as conn, conn.transaction():
            found = await _reserve_at(conn, place, blocked)
        if found is None and await _take_back(database, place, pools, known):
            async with database.relaxed() as conn, conn.transaction():
                found = await _reserve_at(conn, place, blocked)
        if found is None:
            blocked.update(place.budgets)
        chunks += found or 0
    return chunks


async def _take_back(database: Database, place: Place, pools: Sequence[int], known: Known) -> int:
    """Take back what chunks under the same budgets have reserved that do not begin. Returns their number."""
    values = place.values | {"open": list(pools), "seconds": UNCLAIMED_SECONDS, "unit": Unit.TOKENS}
    async with database.relaxed() as conn:
        rows = await (await conn.execute(sql.TAKE_BACK, values)).fetchall()
    for budgets, pool_id, _ in rows:
        known.note_late(budgets, pool_id)
    return sum(chunks for *_, chunks in rows)


async def _reserve_at(conn: Connection, place: Place, blocked: set[int]) -> int | None:
    """Reserve for one place, unless one of its budgets is in `blocked`, to which those are added that somebody has locked.
    Returns how many chunks became ready; None: nothing of it is ready, and the next chunk needs money that others have reserved.
    """
    if blocked.intersection(place.budgets):
        return 0
    locked = await service.locked_free(conn, place.budgets)
    if locked is None:
        blocked.update(place.budgets)
        return 0
    values = place.values | {
        "per_mille": rules.per_mille(locked),
        "whole": any(budget.reserves_maximum for budget in locked),
        **{f"largest_{unit}": rules.least(locked, unit, lambda budget: budget.largest) for unit in Unit},
    }
    for unit in Unit:
        free = rules.least(locked, unit, lambda budget: budget.free)
        values[f"free_{unit}"] = UNLIMITED if free is None else free
    row = await (await conn.execute(sql.READY, values)).fetchone()
    ready = row[0] if row else 0
    if chunks := await _reserve_first(conn, place, values, MOST_READY - ready):
        return chunks
    row = await (await conn.execute(sql.FIRST, values)).fetchone()
    decided = 0 if row is None else await _explain(conn, locked, row)
    return 0 if ready and decided is None else decided


async def _reserve_first(conn: Connection, place: Place, values: dict[str, object], room: int) -> int:
    """Make as many chunks ready as the money allows, by deadline, and at most `room`. Returns their number."""
    if room <= 0:
        return 0
    row = await (await conn.execute(sql.RESERVE, values | {"places": room})).fetchone()
    assert row is not None
    chunks, cost, tokens, deadline, chunk_id = row
    first = (deadline, chunk_id) if chunks else None
    ready_counts.of(conn).add(place.pool_id, place.tenant_id, chunks, first)
    if chunks:
        await conn.execute(sql.RESERVE_IN, {"ids": list(place.budgets), "cost": cost, "tokens": tokens})
    return int(chunks)


async def _explain(conn: Connection, locked: Sequence[Budget], first: tuple[int, int, int, int]) -> int | None:
    """Decide about the first chunk, for which there is too little money: cut it, or write that a budget is spent. Returns how
    many chunks changed; None: it waits for what others have reserved.
    """
    chunk_id, n, cost, tokens = first
    if all(budget.of(cost, tokens) <= budget.free for budget in locked):  # enough are ready
        return 0
    if n > 1 and any(budget.of(cost, tokens) > budget.largest for budget in locked):
        await conn.execute(sql.CUT, {"chunk_id": chunk_id})
        return 1
    short = [budget for budget in locked if budget.of(cost, tokens) > budget.max - budget.spent]
    for budget in short:
        await service.note_spent(conn, budget)
    return 0 if short else None


# ---------------------------------------------------------------- settle


class Sums:
    """What budgets have to know of the deltas that a fold counts."""

    def __init__(self) -> None:
        self._used: list[tuple[object, ...]] = []
        self._returned: list[tuple[object, ...]] = []

    async def read(self, conn: Connection, delta_ids: Sequence[int]) -> None:
        """Before the deltas are gone."""
        values = {"ids": list(delta_ids)}
        self._used = await (await conn.execute(sql.USED, values)).fetchall()
        self._returned = await (await conn.execute(sql.RETURNED, values)).fetchall()

    async def settle(self, conn: Connection) -> None:
        """Spend what the results cost, return what was reserved for them, and write the events. Call in the transaction that
        counts them, after their usage was booked.
        """
        await service.turn(conn)
        if self._returned:
            await conn.execute(sql.RETURN, _columns(_RETURNED, self._returned))
        if self._used:
            rows = await (await conn.execute(sql.SPEND, _columns(_USED, self._used))).fetchall()
            await service.note_reached(conn, [service.of_row(row) for row in rows])


_USED = ("at", "line_id", "prompt", "cached", "output")
_RETURNED = ("budgets", "line_id", "cost", "tokens", "prompt", "cached", "output", "maximum_cost", "maximum_tokens")


def _columns(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> dict[str, list[object]]:
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


# ---------------------------------------------------------------- other budgets


@dataclass(slots=True)
class Moves:
    """Gives queued chunks other budgets when some were added, changed or removed. The memory of one steward.

    An account is looked at for MOVE_SECONDS after a change, and then until its last chunk has its budgets: those that a worker
    had at the change may be handed back.
    """

    _scopes: dict[int, tuple[str, ...]] | None = None
    _until: dict[int, float] = field(default_factory=dict)
    _next: float = 0.0

    async def run(self, database: Database, models: Catalogue) -> int:
        """Move what has to be moved. Returns the number of chunks."""
        now = clock.monotonic()
        async with database.relaxed() as conn:
            scopes = {row[0]: tuple(row[1]) for row in await (await conn.execute(sql.SCOPES)).fetchall()}
            known = self._scopes or {}
            changed = {account for account in {*scopes, *known} if known.get(account) != scopes.get(account)}
            if self._scopes is None:
                changed |= {account for (account,) in await (await conn.execute(sql.ACCOUNTS)).fetchall()}
        self._scopes = scopes
        self._until |= dict.fromkeys(changed, now + MOVE_SECONDS)
        if not changed and now < self._next:
            return 0
        self._next = now + MOVE_AGAIN_SECONDS
        moved = 0
        for account, until in sorted(self._until.items()):
            chunks, all_in_place = await move(database, models, account)
            moved += chunks
            if all_in_place and until <= now:
                del self._until[account]
        return moved


async def move(database: Database, models: Catalogue, tenant_id: int) -> tuple[int, bool]:
    """Give the chunks of an account that no worker has the budgets of their lines. Returns how many changed, and whether all
    chunks have the budgets of their lines now.
    """
    async with database.relaxed() as conn:
        models = await with_adopted(conn, models)
        rows = await (await conn.execute(sql.LINES, {"tenant_id": tenant_id})).fetchall()
        stored = await lines.parts(conn, [line_id for (line_id,) in rows])
        found = await service.of_lines(conn, [line.line_id for line in stored])
    moves = [_move(line, found.get(line.line_id), models) for line in stored]
    names = ("line_id", "budgets", "price", "context_window")
    values: dict[str, object] = {name: [each[place] for each in moves] for place, name in enumerate(names)}
    values |= {"tenant_id": tenant_id, "limit": _MOVED_AT_ONCE}
    moved, changed = 0, 1
    while changed:  # each by itself, since claims wait for it
        async with database.relaxed() as conn:
            row = await (await conn.execute(sql.MOVE, values)).fetchone()
        changed = row[0] if row else 0
        moved += changed
    async with database.relaxed() as conn:
        row = await (await conn.execute(sql.UNDER_OTHERS, values)).fetchone()
    return moved, not (row and row[0])


def _move(line: StoredLine, under: LineBudgets | None, models: Catalogue) -> tuple[int, str | None, int, int | None]:
    """A line, its budgets, the dearer of its prices, and the context window of its model."""
    price, model = under and under.price, models.resolve(line.parts.model)
    window = model.context_window if model else None
    budgets = None if under is None else f"{{{','.join(map(str, under.ids))}}}"
    return line.line_id, budgets, max(price.input, price.output) if price else 0, window


# ---------------------------------------------------------------- another model


async def rules_of_moves(conn: Connection, models: Catalogue, known: Known) -> tuple[Rule, ...]:
    """The rules of the policy in force, if one of them may move waiting work. Empty also while this process does not understand
    them.
    """
    found = await policies.newest(conn)
    if found is None:
        return ()
    if known.policy_id != found.policy_id:
        known.policy_id, known.rules = found.policy_id, ()
        try:
            known.rules = await asyncio.to_thread(language.parse, found.text, models, lenient=True)
        except PolicyError:
            _log.exception("policy.not_read")
    moves = any(rule.fallback is not None and "budget" in rule.when.bounds for rule in known.rules)
    return known.rules if moves else ()


async def divert(conn: Connection, place: Place, models: Catalogue, in_force: Sequence[Rule]) -> int:
    """Move waiting work to a cheaper model, where a rule says so because a budget is short: at most what is reserved for at once.
    Returns the number of chunks.

    Call inside a transaction that has locked nothing yet. Work that another rule keeps from the model stays.
    """
    if not in_force:
        return 0
    values = place.values | {"limit": MOST_READY}
    rows = await (await conn.execute(sql.LINES_WAITING, values)).fetchall()
    shares: dict[int, float] = dict(
        await (await conn.execute(sql.USED_SHARES, {"line_ids": [line for line, _ in rows]})).fetchall()
    )
    stored = {line.line_id: line for line in await lines.parts(conn, list(shares))}
    account = await tenants.account_id_of(conn, place.tenant_id)
    moves = [
        (line, model, expires)
        for line, expires in ((stored[line_id], expires) for line_id, expires in rows if line_id in stored)
        if (model := fallback(models, line.parts, in_force, account, shares[line.line_id])) is not None
    ]
    if not moves:
        return 0
    await settling.exclusively(conn)  # it locks many batches, too
    batch_ids = [batch_id for (batch_id,) in await (await conn.execute(sql.LOCK_BATCHES, values)).fetchall()]
    budgets = await service.locked(conn, place.budgets)
    fullest = max(budgets, key=lambda budget: budget.spent / budget.max, default=None)
    return sum([await _move_to(conn, place, batch_ids, fullest, *move) for move in moves])


def fallback(models: Catalogue, line: LineParts, in_force: Sequence[Rule], account: str, used: float) -> Model | None:
    """The first model of the fallback of a rule that can do what this line's model does, and may answer its work. Pure.

    `used`: per cent of the fullest budget. None: it is no batch, no rule wants it to move, it has moved already, or none fits.
    """
    now = models.resolve(line.model)
    if now is None or line.kind != Kind.BATCH:
        return None
    parts = {name: None if getattr(line, name) in vague else getattr(line, name) for name, vague in _NOT_KNOWN.items()}
    work = QueuedWork(account, line.key_id or None, kind=line.kind, critical=line.critical, model=line.model, **parts)
    names = queued.cheaper(in_force, work, used)
    listed = [model for name in names if (model := models.resolve(name)) is not None]
    fitting = (model for model in listed if now not in listed and _fits(model, now))
    return next((model for model in fitting if queued.lets(in_force, work, model.name)), None)


def _fits(model: Model, now: Model) -> bool:
    alike = model.task == now.task and model.shape == now.shape
    return alike and model.capabilities >= now.capabilities and {*model.media_hosts} >= {*now.media_hosts}


async def _move_to(
    conn: Connection,
    place: Place,
    batch_ids: Sequence[int],
    budget: Budget | None,
    line: StoredLine,
    model: Model,
    expires: bool,
) -> int:
    """Give the line's waiting chunks of batches that expire, or of those that do not, this model at its price for them, and the
    account a place in its pool, and write the event. The batches, which must be locked, name the model. Returns the number of
    chunks.
    """
    model = model.priced(queued_work(expires=expires), clock.now())
    price = TokenPrice.of(model.price, f"price of {model.name}") if model.price else None
    to_line = await lines.with_model(conn, line.parts, model.name, model.price)
    under = (await service.of_lines(conn, [to_line])).get(to_line)
    to_pool = await ensure_pool(conn, model.served)
    ready_counts.of(conn).add(to_pool, place.tenant_id, 0)
    values = place.values | {
        "line_id": line.line_id,
        "expires": expires,
        "model": model.name,
        "context_window": model.context_window,
        "to_pool": to_pool,
        "to_line": to_line,
        "to_budgets": list(under.ids) if under else [],
        "dearest": max(price.input, price.output) if price else 0,
        "batch_ids": list(batch_ids),
        "limit": MOST_READY,
    }
    row = await (await conn.execute(sql.DIVERT, values)).fetchone()
    chunks, items = row or (0, 0)
    if items and budget is not None:
        await service.note_diverted(conn, budget, items, model.name)
    return int(chunks)


# ---------------------------------------------------------------- what a batch waits for


@dataclass(frozen=True, slots=True)
class MoneyWait:
    """The budget that a batch waits for. `windows`: how many have to begin before all of its work is paid. `needed`: by the batch
    alone, in the unit of the budget.
    """

    budget: Budget
    windows: int
    now: datetime
    needed: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the rest of this window is not enough for the batch, also if everything that is reserved comes back."""
        return self.needed > self.budget.max - self.budget.spent

    @property
    def seconds(self) -> float | None:
        """Seconds until the last of these windows begins. None: the budget is not renewed."""
        if not self.windows:
            return 0.0
        begin, end = self.budget.window_from, self.budget.window_to
        if begin is None or end is None:
            return None
        return (end - self.now).total_seconds() + (self.windows - 1) * (end - begin).total_seconds()

    def delayed(self, estimate: Estimate) -> Estimate:
        """The estimate with the wait for money: the work is done in equal parts, one in each window."""
        wait, eta = self.seconds, estimate.eta_seconds
        if wait is None:
            missing = estimate.missing or Missing.MONEY
            return replace(estimate, eta_seconds=None, confidence=Confidence.NONE, missing=missing)
        if eta is None or not self.windows:
            return estimate
        return replace(estimate, eta_seconds=max(eta, wait + eta / (self.windows + 1)), confidence=Confidence.LOW)

    @property
    def order(self) -> tuple[float, int]:
        """The order of waits: by their end; then by the share of the budget that is free, the least last."""
        return inf if self.seconds is None else self.seconds, -self.budget.free * 1000 // self.budget.max


async def money_wait(database: Database, batch_id: int) -> MoneyWait | None:
    """The budget for which a batch waits longest: first one that is never renewed. None: nothing of it waits for money."""
    waits: list[MoneyWait] = []
    async with database.relaxed() as conn:
        rows = await (await conn.execute(sql.BEFORE, {"batch_id": batch_id})).fetchall()
        for budget_ids, *sums in rows:
            found = await service.of_ids(conn, budget_ids)
            own, before = _reserved(found, sums[:4]), _reserved(found, sums[4:8])
            cost, tokens = map(add, before, sums[8:])
            for budget in found:
                windows = rules.windows_needed(budget, cost, tokens)
                waits.append(MoneyWait(budget, windows, clock.now(), budget.of(*own)))
    return max(waits, key=lambda wait: wait.order, default=None)


def _reserved(budgets: Sequence[Budget], sums: Sequence[int]) -> tuple[int, int]:
    """Cost and tokens that these budgets reserve for chunks. `sums`: the most that these can cost and use, and the expected."""
    most_cost, most_tokens, *expected = sums
    share = rules.per_mille(budgets)
    cost, tokens = (most_cost, most_tokens) if any(budget.reserves_maximum for budget in budgets) else expected
    return min(cost, most_cost * share // 1000), min(tokens, most_tokens * share // 1000)
