"""The SQL of the pace log."""

from app.states import CHUNK, EngineState
from app.worker_lease import WORKER_LEASE_HOLDS

# Only pools that have both work and a ready engine: any other time says nothing about the pace. Items done in leased chunks
# count at once; `served_tokens` includes them only when the end of their chunk is folded.
SERVED = f"""
select s.pool_id, extract(epoch from now())::float8, (sum(s.served_tokens) + coalesce(max(l.tokens), 0))::float8
from sched s left join (
  select pool_id, sum(tokens) as tokens from (
    select pool_id, est_tokens::float8 * (done + failed) / n as tokens from chunk where {CHUNK.guard("finish")}
    union all select pool_id, served_tokens from sched_delta) unfolded group by 1) l using (pool_id)
where exists (select from engine e join worker w using (worker_id)
              where e.pool_id = s.pool_id and e.state = '{EngineState.READY}' and w.{WORKER_LEASE_HOLDS})
group by s.pool_id having bool_or(s.ready > 0 or s.inflight_tokens > 0)"""
NOTES = """
select extract(epoch from at)::float8, served_tokens::float8 from (
  select at, served_tokens from pace where pool_id = %(pool_id)s order by at desc limit %(limit)s) x order by at"""
INSERT_NOTE = """
insert into pace (pool_id, at, served_tokens, tokens_per_second, spread)
values (%(pool_id)s, to_timestamp(%(at)s), %(served)s, %(pace)s, %(spread)s) on conflict do nothing"""
DELETE_OLD_NOTES = "delete from pace where at < now() - interval '1 hour'"
