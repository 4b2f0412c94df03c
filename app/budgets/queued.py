"""The money of queued work. Chunks under budgets are born `unreserved`, and become `ready` once their budgets have reserved what
they are expected to cost.

Only the leading steward reserves, settles and moves. Lock order: batch, usage, budget, chunk, sched.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from operator import add
from typing import NamedTuple

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
from app.quantities import moment
from app.queue import ready_counts, settling
from app.queue.estimate import Confidence, Estimate, Missing
from app.queue.pool_status import Asking
from app.queue.types import Kind
from app.queue.unreserved_sql import OPEN_POOLS
from app.settings import Settings
from app.tenants import service as tenants

MOST_READY = 128  # chunks of a group of budgets in a pool for which money is reserved and that no worker has yet
TURN_SECONDS = 1.0
RECOUNT_SECONDS = 60.0
MOVE_AGAIN_SECONDS = 5.0
UNCLAIMED_SECONDS = 30.0  # after which others may have what is reserved for a chunk
LATE_SECONDS = 60.0
_MOVED_AT_ONCE = 5000
_TRIES = 3  # with budgets that calls change meanwhile
_NOT_KNOWN = {"workflow": (lines.OTHER,), "task": (lines.OTHER,), "endpoint": ("-", lines.MIXED)}
_log = structlog.get_logger("steward")


@dataclass(frozen=True, slots=True)
class Place:
    """Where chunks wait for money: the ids of their budgets, and their pool. `short`: the first of them is known to lack it."""

    budgets: tuple[int, ...]
    pool_id: int
    tenant_id: int
    short: bool = False

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
            await service.note(self._database)  # of the windows that are over, too
            if await service.turn(self._database):
                await service.note(self._database)
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
        for drift in await service.recount(self._database):
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
    """Reserve for the chunks that wait and whose pools have an engine that takes work, the earliest deadline first. Returns how
    many became ready or moved.

    A chunk that only waits for other reservations to return keeps later places from taking the money that it needs. If nothing of
    its place is ready, it takes back what no worker can claim, or has claimed for UNCLAIMED_SECONDS.
    """
    known = known or Known()
    async with database.relaxed() as conn:
        rows = await (await conn.execute(sql.WAITING)).fetchall()
        if not rows:
            return 0
        pools = [pool_id for (pool_id,) in await (await conn.execute(OPEN_POOLS)).fetchall()]
        models = await with_adopted(conn, models)
        in_force = await rules_of_moves(conn, models, known)
    places = [Place(tuple(budgets), *place) for budgets, *place in rows]
    blocked: set[int] = set()
    chunks = 0
    for place in sorted(places, key=known.is_late):
        async with database.relaxed() as conn, conn.transaction():
            diverted = 0 if blocked.intersection(place.budgets) else await divert(conn, place, models, in_force)
        chunks += diverted
        if diverted or place.pool_id not in pools:
            continue  # the rest may have to be diverted, too, before anything is reserved for it
        found = await _reserve_at(database, place, blocked)
        if found is None and await _take_back(database, place, pools, known):
            found = await _reserve_at(database, place, blocked)
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


async def _reserve_at(database: Database, place: Place, blocked: set[int]) -> int | None:
    """Reserve for one place, unless one of its budgets is in `blocked`, to which those are added that others change all the time.
    Returns how many chunks became ready; None: nothing of it is ready, and the next chunk needs money that others have reserved.

    As many become ready as the money allows, by deadline, and at most MOST_READY. It is one statement, and holds only if the
    budgets are still as they were read.
    """
    if blocked.intersection(place.budgets):
        if not place.short:
            async with database.relaxed() as conn:
                await conn.execute(sql.NOTE_FIRST_SHORT, place.values)
        return 0
    async with database.relaxed() as conn:
        for _ in range(_TRIES):
            budgets, versions = await service.versions(conn, place.budgets)
            ids = [budget.budget_id for budget in budgets]  # of those that are not gone
            values = _values(place, budgets) | {"ids": ids, "versions": versions}
            [(ready,)] = await (await conn.execute(sql.READY, values)).fetchall()
            values["places"] = max(0, MOST_READY - ready)
            [(unchanged, chunks)] = await (await conn.execute(sql.RESERVE, values)).fetchall()
            if unchanged:
                break
        else:
            blocked.update(place.budgets)
            return 0
        if chunks:
            return int(chunks)
        row = await (await conn.execute(sql.FIRST, values)).fetchone()
    decided = 0 if row is None else await _cut_or_note(database, budgets, row)
    return 0 if ready and decided is None else decided


def _values(place: Place, budgets: Sequence[Budget]) -> dict[str, object]:
    """What these budgets allow in a place, for statements."""
    values = place.values | {
        "per_mille": rules.per_mille(budgets),
        "whole": any(budget.reserves_maximum for budget in budgets),
    }
    for unit in Unit:
        free = rules.least(budgets, unit, lambda budget: budget.free)
        values[f"free_{unit}"] = UNLIMITED if free is None else free
        values[f"largest_{unit}"] = rules.least(budgets, unit, lambda budget: budget.largest)
    return values


async def _cut_or_note(
    database: Database, budgets: Sequence[Budget], first: tuple[int, int, int, int, bool]
) -> int | None:
    """Decide about the first chunk: if there is too little money for it, cut it, or write that it is short and that a budget is
    spent. Returns how many chunks changed; None: it waits for what others have reserved.
    """
    chunk_id, n, cost, tokens, noted = first
    fits = all(budget.of(cost, tokens) <= budget.free for budget in budgets)  # enough are ready
    if noted == fits:
        async with database.relaxed() as conn:
            await conn.execute(sql.NOTE_SHORT, {"chunk_id": chunk_id, "short": not fits})
    if fits:
        return 0
    if n > 1 and any(budget.of(cost, tokens) > budget.largest for budget in budgets):
        async with database.relaxed() as conn:
            await conn.execute(sql.CUT, {"chunk_id": chunk_id})
        return 1
    short = [budget for budget in budgets if budget.of(cost, tokens) > budget.max - budget.spent]
    await service.note_spent(database, short)
    return 0 if short else None


async def asking(conn: Connection) -> list[Asking]:
    """Which pools without an engine have work that could begin with one, by its first chunk."""
    rows = await (await conn.execute(sql.ASKING)).fetchall()
    if not rows:
        return []
    found, _ = await service.versions(conn, sorted({budget_id for ids, *_ in rows for budget_id in ids}))
    by_id = {budget.budget_id: budget for budget in found}
    first: dict[int, Asking] = {}
    for ids, pool_id, deadline, tokens, n, *sums in rows:
        if pool_id not in first and _pay([by_id[each] for each in ids if each in by_id], n, sums):
            first[pool_id] = Asking(pool_id, deadline, tokens)
    return list(first.values())


def _pay(budgets: Sequence[Budget], n: int, sums: Sequence[int]) -> bool:
    """Whether enough of these budgets is unspent to begin with a chunk. `sums` as in `_reserved`. Pure."""
    amounts, whole = _reserved(budgets, sums), any(budget.reserves_maximum for budget in budgets)
    parts = n if any(budget.of(*amounts) > budget.largest for budget in budgets) else 1  # it is cut into its items

    def needed(budget: Budget) -> int:
        amount = budget.of(*amounts) // parts
        return amount if whole else min(amount, budget.largest)

    return all(needed(budget) <= budget.max - budget.spent for budget in budgets)


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
        """Spend what the results cost, and return what was reserved for them, with the commit of the transaction that counts
        them. Call after their usage was booked. Budgets whose windows have ended begin their next ones before.
        """
        turns = [(each.budget_id, each.ended, each.begins, each.ends) for each in await service.due(conn)]
        if self._returned or self._used or turns:
            columns = _columns(_TURNED, turns) | _columns(_USED, self._used) | _columns(_RETURNED, self._returned)
            service.Writes.of(conn).add(sql.SETTLE, columns)


_TURNED = ("turned", "ended", "begins", "ends")
_USED = ("at", "used_line", "used_prompt", "used_cached", "used_output")
_RETURNED = ("budgets", "line_id", "cost", "tokens", "prompt", "cached", "output", "maximum_cost", "maximum_tokens")


def _columns(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> dict[str, list[object]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


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
    found = await (await conn.execute(sql.SPENT_SHARES, {"line_ids": [line for line, _ in rows]})).fetchall()
    shares: dict[int, float] = {line_id: percent for line_id, percent, _ in found}
    fullest: dict[int, int] = {line_id: budget_id for line_id, _, budget_id in found}
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
    budgets = {budget.budget_id: budget for budget in await service.of_ids(conn, [*fullest.values()])}
    chunks, items = 0, Counter[tuple[int, str]]()
    for line, model, expires in moves:
        now = models.resolve(line.parts.model)
        wider = max(0, model.context_window - now.context_window) if now else 0
        moved = await _move_to(conn, place, batch_ids, line, model, expires, wider)
        chunks += moved.chunks
        items[fullest[line.line_id], model.name] += moved.items
    for (budget_id, model_name), count in items.items():
        if count and budget_id in budgets:
            await service.note_diverted(conn, budgets[budget_id], count, model_name)
    return chunks


def fallback(models: Catalogue, line: LineParts, in_force: Sequence[Rule], account: str, used: float) -> Model | None:
    """The first model of the fallback of a rule that can do what this line's model does, and may answer its work. Pure.

    `used`: per cent of its fullest budget. None: it is no batch, no rule wants it to move, it has moved already, or none fits.
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


class _Moved(NamedTuple):
    chunks: int
    items: int


async def _move_to(
    conn: Connection,
    place: Place,
    batch_ids: Sequence[int],
    line: StoredLine,
    model: Model,
    expires: bool,
    wider: int,
) -> _Moved:
    """Give the line's waiting chunks of batches that expire, or of those that do not, this model at its price for them, and the
    account a place in its pool. The batches, which must be locked, name the model. `wider`: tokens by which its context window is
    larger.
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
        "ratio": _ratio(line.parts, price),
        "wider": wider,
        "batch_ids": list(batch_ids),
        "limit": MOST_READY,
    }
    [(chunks, items)] = await (await conn.execute(sql.DIVERT, values)).fetchall()
    return _Moved(chunks, items)


def _ratio(line: LineParts, price: TokenPrice | None) -> float | None:
    """How many times as much as on this line the same tokens cost at most at this price. None: they cannot be compared."""
    if price is None or line.currency != price.currency or not line.price_in or not line.price_out:
        return None
    return max(price.input / line.price_in, price.output / line.price_out)


# ---------------------------------------------------------------- what a batch waits for


@dataclass(frozen=True, slots=True)
class MoneyWait:
    """The budget that a batch waits for. `windows`: how many have to begin before all of its work is paid; `own_windows`: as many
    if nothing came before it. `needed`: by the batch alone, in the unit of the budget. `too_large`: its items need more than the
    maximum, so that no window has room for one.
    """

    budget: Budget
    windows: int
    now: datetime
    needed: int = 0
    too_large: bool = False
    own_windows: int = 0

    @property
    def is_over(self) -> bool:
        """Whether the rest of this window is not enough for the batch, also if everything that is reserved comes back."""
        return self.needed > self.budget.max - self.budget.spent

    @property
    def seconds(self) -> float | None:
        """Seconds until the last of these windows begins. None: there is none that would do."""
        if self.too_large:
            return None
        if not self.windows:
            return 0.0
        begin, end = self.budget.window_from, self.budget.window_to
        if begin is None or end is None:
            return None
        return (end - self.now).total_seconds() + (self.windows - 1) * (end - begin).total_seconds()

    @property
    def until(self) -> str:
        """When the budget has money for the rest, in words that follow its name. Empty: in this window."""
        if self.too_large:
            return "has a maximum below what an item may use, so raise it"
        if not self.windows:
            return ""
        if self.budget.window_to is None:
            return "is never renewed, so raise its maximum"
        often = f", and the batch takes {self.own_windows:,} windows" if self.own_windows > 1 else ""
        return f"renews {moment(self.budget.window_to)}{often}"

    def delayed(self, estimate: Estimate) -> Estimate:
        """The estimate, without an ETA if the work needs another window: who comes first in it is not known."""
        if not self.until:
            return estimate
        missing = estimate.missing if estimate.missing in (Missing.STATE, Missing.ENGINE) else Missing.MONEY
        return replace(estimate, eta_seconds=None, confidence=Confidence.NONE, missing=missing)

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
            cost, tokens = map(add, before, sums[8:10])
            whole = any(budget.reserves_maximum for budget in found)
            own_items, items = sums[10:]
            for budget in found:
                windows = rules.windows_needed(budget, cost, tokens, None if whole else items)
                own_windows = rules.windows_needed(budget, *own, None if whole else own_items)
                needed = budget.of(*own)
                too_large = whole and needed > budget.max * own_items
                waits.append(MoneyWait(budget, windows, clock.now(), needed, too_large, own_windows))
    return max(waits, key=lambda wait: wait.order, default=None)


def _reserved(budgets: Sequence[Budget], sums: Sequence[int]) -> tuple[int, int]:
    """Cost and tokens that these budgets reserve for chunks. `sums`: the most that these can cost and use, and the expected."""
    most_cost, most_tokens, *expected = sums
    share = rules.per_mille(budgets)
    cost, tokens = (most_cost, most_tokens) if any(budget.reserves_maximum for budget in budgets) else expected
    return min(cost, (most_cost * share + 999) // 1000), min(tokens, (most_tokens * share + 999) // 1000)
