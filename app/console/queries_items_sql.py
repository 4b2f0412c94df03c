"""The SQL of the items of a batch, without bodies but those of errors; only a reveal reads the others."""

from app.console.queries_sql import MOST_SAMPLED

# A list that no index has is found among so many results from its place on, and no further.
MOST_WALKED = 4_000

# Results of an item in every run, with the facts of each, without bodies but those of errors.
_ITEM = """
select p.seq, p.reference, p.model, p.est_tokens, r.ok, r.error, r.run, r.attempt, r.yields, r.prompt_tokens, r.cached_tokens,
       r.completion_tokens, r.finished_at, e.name, r.queued_ms, r.first_token_ms, r.ran_ms,
       case when r.ok = 0 and not r.stored then r.body end"""
ANSWERED_ITEMS = f"""{_ITEM}
from (select * from item_result where batch_id = %(batch_id)s and seq >= %(after)s and ok = 1 order by seq limit %(limit)s) r
cross join lateral (select * from item_payload p where p.batch_id = %(batch_id)s and p.seq = r.seq limit 1) p
left join engine e on e.engine_id = r.engine_id order by r.seq"""

TRIES = f"""{_ITEM}
from item_payload p left join item_result r on r.batch_id = p.batch_id and r.seq = p.seq
left join engine e on e.engine_id = r.engine_id
where p.batch_id = %(batch_id)s and p.seq = %(seq)s order by r.run"""
BODIES = """
select p.body, p.stored, r.body, r.stored, coalesce(r.ok = 1, false), r.run
from item_payload p left join lateral (
  select body, stored, ok, run from item_result r where r.batch_id = p.batch_id and r.seq = p.seq
  order by ok desc, run desc limit 1) r on true
where p.batch_id = %(batch_id)s and p.seq = %(seq)s"""

WALKS = {"retried": "attempt > 1 or yields > 0", "slow": "ran_ms >= %(slow_ms)s"}


def walked(kind: str) -> str:
    """Items of a walk from number `after` on. `kind`: a key of WALKS."""
    return f"""{_ITEM}
from (select * from (select * from item_result where batch_id = %(batch_id)s and seq >= %(after)s order by seq
                     limit {MOST_WALKED}) w where {WALKS[kind]} order by seq limit %(limit)s) r
cross join lateral (select * from item_payload p where p.batch_id = %(batch_id)s and p.seq = r.seq limit 1) p
left join engine e on e.engine_id = r.engine_id order by r.seq, r.run"""


WALK_END = f"""
select max(seq), count(*) = {MOST_WALKED} from (
  select seq from item_result where batch_id = %(batch_id)s and seq >= %(after)s order by seq limit {MOST_WALKED}) w"""

# The usual time of an item: the median of evenly spaced ones.
USUAL_MS = f"""
select percentile_cont(0.5) within group (order by r.ran_ms)
from generate_series(0, least(%(total)s, {MOST_SAMPLED}) - 1) s (i)
cross join lateral (select ran_ms from item_result r where r.batch_id = %(batch_id)s
  and r.seq = (s.i::bigint * %(total)s / least(%(total)s, {MOST_SAMPLED}))::int order by run limit 1) r"""
