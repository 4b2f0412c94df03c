"""The SQL of the pages about engines. Histories are read in stretches, the gate by the index of the decision log."""

from app.engines.adoption import DOWN
from app.engines.sql import AWAY, OVERDUE, SILENT_SECONDS
from app.headroom.samples_sql import SUMS
from app.queue.item_counts_sql import OF_ENGINE
from app.worker_lease import WORKER_LEASE_HOLDS

_COLUMNS = f"""e.engine_id, e.name, coalesce(p.model, '') as model, e.protection, e.state, e.reason, e.signal, e.value,
       e.threshold, extract(epoch from now() - e.reason_since)::float8 as held, e.slots, e.allowance, {OF_ENGINE},
       e.sync_in_flight, coalesce(w.{WORKER_LEASE_HOLDS}, false) as alive, e.intake, e.problems, {SILENT_SECONDS}, {OVERDUE},
       {AWAY}"""
_FROM = "from engine e left join pool p on p.pool_id = e.pool_id left join worker w on w.worker_id = e.worker_id"

PAGE = f"""
select {_COLUMNS} {_FROM}
where (w.{WORKER_LEASE_HOLDS} or e.heartbeat_at > now() - interval '1 day') and e.name > %(after)s
order by e.name limit %(limit)s"""

ONE = f"""
select {_COLUMNS}, e.mode, e.url, e.version, e.dialect, e.scheduling_policy, e.max_model_len, e.served_name, e.start_seconds,
       e.detail, e.intake_since, w.host, w.pid,
       greatest(0, extract(epoch from w.lease_until - now()))::float8,
       greatest(0, extract(epoch from e.expected_at - now()))::float8
{_FROM} where e.name = %(name)s"""

_SUMMED = ", ".join(
    f"sum({name})::{'bigint' if name.endswith('tokens') else 'float8'}"
    for name in SUMS
    if name not in ("yields", "evictions")
)

# What an engine did since then, in stretches of one length: few columns, for a drawing. A stretch in which the gate was closed
# has the reason for that.
TIDE = f"""
select max(at), coalesce(max(reason) filter (where closed_seconds > 0), max(reason)), {_SUMMED}
from engine_sample where engine_id = %(engine_id)s and at >= %(since)s and at <= coalesce(%(until)s::timestamptz, 'infinity')
group by floor(extract(epoch from at) / %(stretch)s) order by 1"""

# When each of these engines served first: what its worker saw before was only that it was being started. A minute is kept for
# longer than a sample, so an engine with one of before has served for as long as anything is drawn.
BEGUN = f"""
select e.engine_id, case when exists (select from engine_minute m where m.engine_id = e.engine_id and m.reason <> '{DOWN}')
  then to_timestamp(0) else s.at end
from engine e left join lateral (select at from engine_sample s where s.engine_id = e.engine_id and s.reason <> '{DOWN}'
  order by at limit 1) s on true
where e.engine_id = any(%(engine_ids)s)"""

DAY = """
select coalesce(sum(seconds), 0)::float8, coalesce(sum(closed_seconds), 0)::float8, coalesce(sum(batch_tokens), 0)::bigint,
       coalesce(sum(yields), 0)::bigint, coalesce(sum(evictions), 0)::bigint
from engine_sample where engine_id = %(engine_id)s and at > now() - interval '1 day' and at >= %(begun)s"""

SINCE = """
select at, allowance, reason from decision where engine_id = %(engine_id)s and at >= %(since)s
order by at desc, decision_id desc limit %(limit)s"""
