"""SQL of those who look after webhooks: what was sent, again, replayed, tried."""

from app.states import DELIVERY, ENDPOINT, DeliveryState
from app.webhooks.sql import DEAF, NEVER_SENT, chosen, heard


def _deliveries(where: str) -> str:
    return f"""
select d.delivery_id, d.state, d.attempts, nullif(d.next_attempt_at, {NEVER_SENT}), v.message_id, v.kind, v.data, v.occurred_at,
       d.reason, a.n, a.started_at, a.duration_ms, a.http_status, a.error_class, a.address, null::bytea
from delivery d join event v using (event_id)
left join lateral (select * from attempt where attempt.delivery_id = d.delivery_id order by attempt_id desc limit 1) a on true
where d.endpoint_id = %(endpoint_id)s and {where}
"""


_CHOSEN = """(%(state)s::text is null or d.state = %(state)s) and (%(kind)s::text is null or v.kind = %(kind)s)
  and (%(before)s::bigint is null or d.delivery_id < %(before)s)"""
DELIVERIES = f"{_deliveries(_CHOSEN)} order by d.delivery_id desc limit %(limit)s"
DELIVERY_BY_ID = _deliveries("d.delivery_id = %(delivery_id)s")

ATTEMPTS = """
select n, started_at, duration_ms, http_status, error_class, address, response_body
from attempt where delivery_id = %s order by attempt_id
"""

_ANEW = f"""state = '{DeliveryState.PENDING}', attempts_before = delivery.attempts, reason = null,
    next_attempt_at = case when delivery.next_attempt_at = {NEVER_SENT} then {NEVER_SENT} else now() end"""

REDELIVER = f"""
update delivery set {_ANEW}
where endpoint_id = %(endpoint_id)s and delivery_id = %(delivery_id)s and {DELIVERY.guard("redeliver")}
returning delivery_id
"""

# What an endpoint was never told, because it was disabled or did not exist yet, becomes a delivery as well.
REPLAY = f"""
insert into delivery (event_id, endpoint_id, batch_id, next_attempt_at)
select v.event_id, e.endpoint_id, v.batch_id, case when e.url is null then {NEVER_SENT} else now() end
from endpoint e join event v using (tenant_id)
where e.tenant_id = %(tenant_id)s and e.endpoint_id = %(endpoint_id)s and e.state not in {DEAF}
  and v.occurred_at >= %(since)s and v.occurred_at < coalesce(%(until)s, now())
  and {heard("v.kind", "v.batch_id")} = any(coalesce(%(kinds)s::text[], e.kinds)) and v.batch_id is not null
  and (e.model is null or e.model = v.model)
  and {chosen("v.batch_id")}
  and not exists (select from delivery d where d.event_id = v.event_id and d.endpoint_id = e.endpoint_id
                  and (d.state not in ('{DeliveryState.DELIVERED}', '{DeliveryState.DEAD}')
                       or %(only_failed)s and d.state = '{DeliveryState.DELIVERED}'))
order by v.event_id limit %(limit)s for key share of e, v skip locked
on conflict (event_id, endpoint_id) do update set {_ANEW}
where {DELIVERY.guard("redeliver", "delivery.")}
returning delivery_id
"""

MOST_COUNTED = 1000  # of a state; so many, or more

# Each state by its name, for the index that holds only such deliveries.
_WATCHED = "\nunion all ".join(
    f"select 'deliveries', '{state}', count(*) from (select from delivery where state = '{state}' limit {MOST_COUNTED}) c"
    for state in DELIVERY.stored()
    if state != DeliveryState.DELIVERED
)
_STATES = ", ".join(f"('{state}')" for state in ENDPOINT.stored())

# What is fetched has no time by which it should have gone.
GAUGES = f"""
{_WATCHED}
union all select 'oldest_due_delivery_seconds', '', coalesce(extract(epoch from now() - (
    select min(next_attempt_at) from delivery where {DELIVERY.guard("claim")} and next_attempt_at <= now())), 0)
union all select 'endpoints', w.state, (select count(*) from endpoint e where e.state = w.state)
  from (values {_STATES}) w (state)
union all select 'failing_endpoints', '', count(*) from endpoint where failing_since is not null
"""

# What an account leaves that is deleted: its deliveries go with the events that they tell, then its endpoints.
FORGET_EVENTS = """
with old as materialized (select event_id from event where tenant_id = %(tenant_id)s order by event_id limit %(limit)s),
told as (delete from delivery using old where delivery.event_id = old.event_id)
delete from event using old where event.event_id = old.event_id"""
FORGET_ENDPOINTS = "delete from endpoint where tenant_id = %(tenant_id)s"
ENDPOINT_IDS = f"select endpoint_id from endpoint where tenant_id = %(tenant_id)s and {ENDPOINT.guard('disable')}"

# Of deleted endpoints the deliveries go in steps, then they: a cascade over all of them would hold up whoever writes an event
# meanwhile. The last step finds at most what was written while the endpoint was being closed.
FORGET_DELIVERIES = f"""
with old as materialized (
    select d.delivery_id from endpoint e join delivery d using (endpoint_id)
    where {ENDPOINT.guard("remove", "e.")} limit %(limit)s for update of d skip locked
)
delete from delivery using old where delivery.delivery_id = old.delivery_id
"""
REMOVE_ENDPOINTS = f"""
with old as materialized (
    select e.endpoint_id from endpoint e
    where {ENDPOINT.guard("remove", "e.")} and not exists (select from delivery d where d.endpoint_id = e.endpoint_id)
    for update skip locked
)
delete from endpoint using old where endpoint.endpoint_id = old.endpoint_id
"""
