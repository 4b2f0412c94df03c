"""Funds chunks: those under budgets are born `unfunded`, and become `ready` once their budgets hold money for them.

Verbs of the steward. `app.batches.funding` calls them between those of `app.metering.budgets`, whose rows it locks before.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from app.db.pool import Connection
from app.money_sums import MoneySums, ReturnedSum, UsedSum
from app.queue import funding_sql as queries
from app.queue import ready_counts

MOST_READY = 128  # funded chunks of a lane in a pool that no worker has yet
_MOVED_AT_ONCE = 5000
_WIDENED_AT_ONCE = 500  # of which the size of each item is looked up


@dataclass(frozen=True, slots=True)
class Waiting:
    """A lane and a pool with chunks that wait for money."""

    lane_id: int
    pool_id: int
    tenant_id: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What a lane can hold now, and how. Amounts: of cost in 10^-9 of the currency, and of tokens.

    `per_mille`: of a chunk's worst that a hold takes. `largest_*`: the largest hold; None: no limit. `strict`: holds all.
    """

    free_cost: int
    free_tokens: int
    per_mille: int
    strict: bool
    largest_cost: int | None
    largest_tokens: int | None


@dataclass(frozen=True, slots=True)
class Funded:
    """How many chunks became ready, and what is held for them."""

    chunks: int
    cost: int
    tokens: int


@dataclass(frozen=True, slots=True)
class FirstChunk:
    """The first chunk of a lane that waits, and what would be held for it."""

    chunk_id: int
    n: int
    cost: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Unfunded:
    """Chunks of a lane that wait for money: the most that they can cost and use, and the per mille of it that they likely do."""

    lane_id: int
    likely: int
    cost: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Move:
    """The lane of a line's chunks, None where no budget applies, and the dearer of its prices, in 10^-12 a token.

    `strict`: of the lane, whose holds are all that a chunk can cost. Then `input_price` is that of the prompt, and
    `context_window` that of the model; None: it is not known.
    """

    line_id: int
    lane_id: int | None
    price: int
    input_price: int = 0
    context_window: int | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class Diversion:
    """Another model for the waiting chunks of a line."""

    waiting: Waiting
    line_id: int
    model: str
    context_window: int
    to_pool: int
    to_line: int
    dearest: int


async def waiting(conn: Connection) -> list[Waiting]:
    """Where chunks wait for money, the earliest deadline first."""
    return [Waiting(*row) for row in await (await conn.execute(queries.WAITING)).fetchall()]


async def fund(conn: Connection, where: Waiting, terms: Terms) -> Funded:
    """Make as many chunks ready as the terms allow, by deadline, and at most MOST_READY with those that are ready already."""
    values = asdict(terms) | {"lane": where.lane_id, "pool_id": where.pool_id}
    row = await (await conn.execute(queries.READY, values)).fetchone()
    places = MOST_READY - (row[0] if row else 0)
    if places <= 0:
        return Funded(0, 0, 0)
    row = await (await conn.execute(queries.FUND, values | {"places": places})).fetchone()
    assert row is not None
    *sums, deadline, chunk_id = row
    funded = Funded(*sums)
    ready_counts.of(conn).add(
        where.pool_id, where.tenant_id, funded.chunks, (deadline, chunk_id) if funded.chunks else None
    )
    return funded


async def first(conn: Connection, where: Waiting, terms: Terms) -> FirstChunk | None:
    """The chunk that is funded next."""
    values = asdict(terms) | {"lane": where.lane_id, "pool_id": where.pool_id}
    row = await (await conn.execute(queries.FIRST, values)).fetchone()
    return None if row is None else FirstChunk(*row)


async def cut(conn: Connection, chunk_id: int) -> None:
    """Cut an unfunded chunk into its items."""
    await conn.execute(queries.CUT, {"chunk_id": chunk_id})


async def money_sums(conn: Connection, delta_ids: Sequence[int]) -> MoneySums:
    """What budgets have to know of these deltas."""
    if not delta_ids:
        return MoneySums()
    values = {"ids": list(delta_ids)}
    used = await (await conn.execute(queries.USED, values)).fetchall()
    returned = await (await conn.execute(queries.RETURNED, values)).fetchall()
    return MoneySums(tuple(UsedSum(*row) for row in used), tuple(ReturnedSum(*row) for row in returned))


async def held(conn: Connection) -> list[tuple[int, int, int]]:
    """By lane, what chunks and uncounted deltas hold: (lane, cost, tokens)."""
    return [(lane, cost, tokens) for lane, cost, tokens in await (await conn.execute(queries.HELD)).fetchall()]


async def lines(conn: Connection, tenant_id: int) -> list[int]:
    """The lines of an account's chunks."""
    return [line_id for (line_id,) in await (await conn.execute(queries.LINES, {"tenant_id": tenant_id})).fetchall()]


async def move(conn: Connection, tenant_id: int, moves: Sequence[Move], strict_lanes: Sequence[int] = ()) -> int:
    """Give an account's chunks the lanes of their lines; those of other lines stay. Returns how many changed, not all at once.

    `strict_lanes`: lanes whose chunks are priced as strict budgets want it. Call it in autocommit mode, since claims wait for
    it, until it returns 0.
    """
    names = ("line_id", "price", "input_price", "context_window", "strict")
    values: dict[str, object] = {name: [getattr(each, name) for each in moves] for name in names}
    values |= {
        "lane": [each.lane_id for each in moves],
        "strict_lanes": list(strict_lanes),
        "tenant_id": tenant_id,
        "limit": _WIDENED_AT_ONCE if any(each.strict for each in moves) else _MOVED_AT_ONCE,
    }
    row = await (await conn.execute(queries.MOVE, values)).fetchone()
    return row[0] if row else 0


async def in_other_lanes(conn: Connection, tenant_id: int, moves: Sequence[Move]) -> bool:
    """Whether chunks of the account, such as those that a worker has, are not in the lanes of their lines."""
    values = {"line_id": [each.line_id for each in moves], "lane": [each.lane_id for each in moves]}
    row = await (await conn.execute(queries.IN_OTHER_LANES, values | {"tenant_id": tenant_id})).fetchone()
    return bool(row and row[0])


async def waiting_lines(conn: Connection, where: Waiting) -> list[int]:
    """The lines of the chunks that are funded next."""
    values = {"lane": where.lane_id, "pool_id": where.pool_id, "limit": MOST_READY}
    return [line_id for (line_id,) in await (await conn.execute(queries.LINES_WAITING, values)).fetchall()]


async def lock_batches(conn: Connection, where: Waiting) -> list[int]:
    """The batches of the chunks that are funded next, locked until the transaction ends."""
    values = {"lane": where.lane_id, "pool_id": where.pool_id, "limit": MOST_READY}
    return [batch_id for (batch_id,) in await (await conn.execute(queries.LOCK_BATCHES, values)).fetchall()]


async def divert(conn: Connection, to: Diversion, batch_ids: Sequence[int]) -> tuple[int, int]:
    """Give waiting chunks of these batches another model, and the account a place in its pool. The batches, which must be
    locked, name it. Returns the numbers of chunks and items.
    """
    ready_counts.of(conn).add(to.to_pool, to.waiting.tenant_id, 0)
    values = asdict(to) | {"lane": to.waiting.lane_id, "pool_id": to.waiting.pool_id, "limit": MOST_READY}
    values["batch_ids"] = list(batch_ids)
    values.pop("waiting")
    row = await (await conn.execute(queries.DIVERT, values)).fetchone()
    return (row[0], row[1]) if row else (0, 0)


async def before(conn: Connection, batch_id: int) -> list[Unfunded]:
    """A batch's unfunded chunks and those that are funded before them, by lane and by what they likely use."""
    return [Unfunded(*row) for row in await (await conn.execute(queries.BEFORE, {"batch_id": batch_id})).fetchall()]


async def beyond(conn: Connection) -> list[tuple[int, float, float]]:
    """By lane, what funded chunks and uncounted results can cost and use beyond their holds: (lane, cost, tokens)."""
    return [(lane, cost, tokens) for lane, cost, tokens in await (await conn.execute(queries.BEYOND)).fetchall()]


async def gauges(conn: Connection) -> list[tuple[str, str, float]]:
    """The gauges of funding: (name, label, value)."""
    return [tuple(row) for row in await (await conn.execute(queries.GAUGES)).fetchall()]
