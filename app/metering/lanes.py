"""Lanes: the combinations of budgets that apply to queued work. A chunk carries the id of its lane; without a budget it has none.

Which budgets apply to a line is decided here and in `budget_sql`. A lane is never changed.
"""

from collections.abc import Sequence

from app.db.pool import Connection
from app.metering import budget_sql as sql
from app.metering import budgets
from app.metering.budget_rules import Funding, Learned
from app.metering.money import TokenPrice

_LINE_COLUMNS = 7  # of BUDGETS_OF_LINES, before those of the budget


async def of_lines(conn: Connection, line_ids: Sequence[int]) -> dict[int, Funding]:
    """The funding of each line that has a budget."""
    found: dict[int, Funding] = {}
    for row in await (await conn.execute(sql.BUDGETS_OF_LINES, {"line_ids": list(line_ids)})).fetchall():
        line_id, tenant_id, price_in, price_cached, price_out, currency, long_answer = row[:_LINE_COLUMNS]
        price = None if price_in is None else TokenPrice(price_in, price_cached, price_out, currency)
        known = found.get(line_id)
        applies = (*(known.budgets if known else ()), budgets.of_row(row[_LINE_COLUMNS:]))
        found[line_id] = Funding(line_id, tenant_id, applies, price, long_answer)
    return found


async def lane_id(conn: Connection, funding: Funding) -> int:
    """The lane of these budgets, which is added if it is new. Committed before a chunk has it, or in its transaction."""
    budget_ids = [budget.budget_id for budget in funding.budgets]
    values = {"tenant_id": funding.tenant_id, "budget_ids": budget_ids, "strict": funding.strict}
    row = await (await conn.execute(sql.FIND_LANE, values)).fetchone()
    if row is None:
        await conn.execute(sql.ADD_LANE, values)
        row = await (await conn.execute(sql.FIND_LANE, values)).fetchone()
    assert row is not None
    return int(row[0])


async def find(conn: Connection, lane: int) -> tuple[list[int], Learned]:
    """The ids of the lane's budgets, and what it has learned."""
    [(budget_ids, *learned)] = await (await conn.execute(sql.LANE, {"lane_id": lane})).fetchall()
    return list(budget_ids), Learned(*learned)


async def strict(conn: Connection, tenant_id: int) -> list[int]:
    """The lanes of an account in which a hold is all that a request can cost."""
    rows = await conn.execute(sql.STRICT_LANES, {"tenant_id": tenant_id})
    return [lane_id for (lane_id,) in await rows.fetchall()]


async def scopes(conn: Connection) -> dict[int, tuple[str, ...]]:
    """By account, its budgets and what each applies to. Where it changes, queued work may need another lane."""
    return {tenant_id: tuple(found) for tenant_id, found in await (await conn.execute(sql.SCOPES)).fetchall()}


async def accounts(conn: Connection) -> set[int]:
    """The accounts that have or had a budget."""
    return {tenant_id for (tenant_id,) in await (await conn.execute(sql.LANE_TENANTS)).fetchall()}
