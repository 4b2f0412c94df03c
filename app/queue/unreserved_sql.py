"""The SQL of unreserved chunks. They wait for money of their budgets (`app.budgets`), or only for an engine: without one nothing
is reserved.
"""

from app.states import CHUNK, EngineIntake, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

# The pools with an engine that takes work.
OPEN_POOLS = f"""
select distinct e.pool_id from engine e join worker w using (worker_id)
where e.state = '{EngineState.READY}' and e.intake = '{EngineIntake.OPEN}' and w.{WORKER_LEASE_HOLDS}"""


def spent(budgets: str) -> str:
    """Whether one of these budgets has nothing left."""
    return f"exists (select from budget b where b.budget_id = any({budgets}) and b.spent >= b.max)"


def places(columns: str = "") -> str:
    """A recursive CTE `places`: a row for each group of budgets and pool with unreserved chunks, with `columns` of the first of
    them. The index is entered once for each.
    """
    found = (
        f"""select budgets, pool_id, deadline{columns and ", "}{columns} from chunk where {CHUNK.guard("reserve")}"""
    )
    first = "order by budgets, pool_id, deadline, chunk_id limit 1"
    return f"""
 places as (
  ({found} {first})
  union all
  select f.* from places p cross join lateral ({found} and (budgets, pool_id) > (p.budgets, p.pool_id) {first}) f)"""


MOST_COUNTED = 1000  # chunks of one group, for a gauge


def counted(groups: str, most: int = MOST_COUNTED) -> str:
    """By pool and account the chunks `n` of each of these groups, at most `most`, and the mean of their estimates, `tokens`."""
    return f"""(select g.pool_id, g.tenant_id, c.n, c.tokens from {groups} g cross join lateral (
    select count(*) as n, avg(est_tokens)::float8 as tokens from (
      select est_tokens from chunk where {CHUNK.guard("reserve")} and budgets = g.budgets and pool_id = g.pool_id
      order by deadline, chunk_id limit {most}) x) c)"""


# After `with recursive`: all groups (`served`: an engine takes their work), and those that wait only for their turn or for an
# engine, and not for money: their chunks are as good as ready. The steward has noted at the first chunk whether its money is
# there. Without an engine it does not look again: then the note holds for a window in which the money of a budget has ended.
PAYABLE = f"""{places("tenant_id, short")},
 groups as materialized (select budgets, pool_id, tenant_id, short, pool_id in ({OPEN_POOLS}) as served from places),
 payable as materialized (
  select * from groups g where not {spent("g.budgets")} and (g.short and (
    g.served or exists (select from budget b where b.budget_id = any(g.budgets) and b.spent_in = b.window_from)))
    is not true)"""
