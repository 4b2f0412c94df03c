"""How far the ledger and the budgets are from the results themselves, once nothing is open. 0 is right everywhere."""

from decimal import Decimal
from typing import Any

import psycopg

from app.metering.lines import UNQUEUED

# By account: requests, tokens and money, of the results that an engine was asked for and of the usage that is booked for queued
# work. A result has the line of its chunk, of which nothing is left, so its cost is right if each batch has one price, as in
# these arms.
_LEDGER = f"""
with results as (
  select b.tenant_id, count(*) as requests, sum(r.prompt_tokens) as prompt, sum(r.cached_tokens) as cached,
         sum(r.completion_tokens) as output,
         sum((r.prompt_tokens - r.cached_tokens) * coalesce(l.price_in, 0) + r.cached_tokens * coalesce(l.price_cached, 0)
             + r.completion_tokens * coalesce(l.price_out, 0)) as cost
  from item_result r join batch b using (batch_id) left join line l using (line_id)
  where r.attempt > 0 group by 1),
 booked as (
  select l.tenant_id, sum(u.requests) as requests, sum(u.prompt) as prompt, sum(u.cached) as cached, sum(u.output) as output,
         sum((u.prompt - u.cached) * coalesce(l.price_in, 0) + u.cached * coalesce(l.price_cached, 0)
             + u.output * coalesce(l.price_out, 0)) as cost
  from usage u join line l using (line_id) where l.kind not in ({", ".join(map(repr, UNQUEUED))}) group by 1)
select coalesce(sum(abs(coalesce(r.requests, 0) - coalesce(b.requests, 0))), 0),
       coalesce(sum(abs(coalesce(r.prompt, 0) - coalesce(b.prompt, 0)) + abs(coalesce(r.cached, 0) - coalesce(b.cached, 0))
                    + abs(coalesce(r.output, 0) - coalesce(b.output, 0))), 0),
       coalesce(sum(abs(coalesce(r.cost, 0) - coalesce(b.cost, 0))), 0)
from results r full join booked b using (tenant_id)"""

# What budgets have, and how far each is from the usage of its window: tokens, or money in 10^-9 of its currency.
_BUDGETS = """
select coalesce(sum(reserved), 0), coalesce(sum(abs(spent - used)), 0) from (
  select b.budget_id, b.reserved, b.spent, coalesce(sum(
    case when b.unit = 'tokens' then u.prompt + u.output
         when l.currency = b.currency then ((u.prompt - u.cached) * l.price_in + u.cached * l.price_cached
                                            + u.output * l.price_out) / 1000.0 end), 0) as used
  from budget b
  left join line l on l.tenant_id = b.tenant_id
    and (b.scope = 'account' or b.scope_value = case b.scope when 'key' then l.key_id else l.workflow end)
  left join usage u on u.line_id = l.line_id and u.hour >= b.window_from
  group by b.budget_id) x"""

# A settlement rounds to 10^-9: with prices of whole multiples of it, as ours, there is nothing to round.
_MONEY = Decimal(1000)  # of the ledger's 10^-12 in 10^-9


def drifts(url: str) -> dict[str, Any]:
    """Differences in requests, in tokens and in money (10^-9 of the currency) between ledger and results, their sum, and what
    budgets still reserve, or have spent beyond or below the ledger.
    """
    with psycopg.connect(url, autocommit=True) as conn:
        [(requests, tokens, cost)] = conn.execute(_LEDGER).fetchall()
        [(reserved, apart)] = conn.execute(_BUDGETS).fetchall()
    parts = {"requests": int(requests), "tokens": int(tokens), "cost": int(Decimal(cost) / _MONEY)}
    named = {f"ledger_drift_{name}": value for name, value in parts.items()}
    return {"ledger_drift": sum(parts.values()), **named, "budget_drift": int(reserved) + int(apart)}
