"""SQL on past deliveries: list them with their attempts, send them again, replay a period, count them."""

from app.states import DELIVERY, ENDPOINT, DeliveryState
from app.webhooks.events_sql import NEVER_SENT, UNREACHABLE, batch_matches, subscribed_kind


def _deliveries(where: str) -> str:
    return f"""
select d.delivery_id, d.state, d.attempts, nullif(d.next_attempt_at, {NEVER_SENT}), v.message_id, v.kind, v.data, v.occurred_at,
       d.reason, a.n, a.started_at, a.duration_ms, a.http_status, a.error_class, a.address, null::bytea
from delivery d join event v using (event_id)
left join lateral (select * from attempt where attempt.delivery_id = d.delivery_id order by attempt_id desc limit 1) a on true
where d.endpoint_id = %(endpoint_id)s and {where}
"""


_FILTER = """(%(state)s::text is null or d.state = %(state)s) and (%(kind)s::text is null or v.kind = %(kind)s)
  and (%(before)s::bigint is null or d.delivery_id < %(before)s)"""
DELIVERIES = f"{_deliveries(_FILTER)} order by d.delivery_id desc limit %(limit)s"
DELIVERY_BY_ID = _deliveries("d.delivery_id = %(delivery_id)s")

ATTEMPTS = """
select n, started_at, duration_ms, http_status, error_class, address, response_body
from attempt where delivery_id = %s order by attempt_id
"""

_START_AGAIN = f"""state = '{DeliveryState.PENDING}', attempts_before = delivery.attempts, reason = null,
    next_attempt_at = case when delivery.next_attempt_at = {NEVER_SENT} then {NEVER_SENT} else now() end"""

REDELIVER = f"""
update delivery set {_START_AGAIN}
where endpoint_id = %(endpoint_id)s and delivery_id = %(delivery_id)s and {DELIVERY.guard("redeliver")}
returning delivery_id
"""

# An event that has no delivery to this endpoint, which was disabled or did not exist then, gets one.
REPLAY = f"""
insert into delivery (event_id, endpoint_id, batch_id, next_attempt_at)
select v.event_id, e.endpoint_id, v.batch_id, case when e.url is null then {NEVER_SENT} else now() end
from endpoint e join event v using (tenant_id)
where e.tenant_id = %(tenant_id)s and e.endpoint_id = %(endpoint_id)s and e.state not in {UNREACHABLE}
  and v.occurred_at >= %(since)s and v.occurred_at < coalesce(%(until)s, now())
  and {subscribed_kind("v.kind", "v.batch_id")} = any(coalesce(%(kinds)s::text[], e.kinds)) and v.batch_id is not null
  and (e.model is null or e.model = v.model)
  and {batch_matches("v.batch_id")}
  and not exists (select from delivery d where d.event_id = v.event_id and d.endpoint_id = e.endpoint_id
                  and (d.state not in ('{DeliveryState.DELIVERED}', '{DeliveryState.DEAD}')
                       or %(only_failed)s and d.state = '{DeliveryState.DELIVERED}'))
order by v.event_id limit %(limit)s for key share of e, v skip locked
on conflict (event_id, endpoint_id) do update set {_START_AGAIN}
where {DELIVERY.guard("redeliver", "delivery.")}
returning delivery_id
"""

MOST_COUNTED = 1000  # of a state; this value means so many or more

# Each state is a constant, so that the partial index on undelivered rows can be used.
_WATCHED = "\nunion all ".join(
    f"select 'deliveries', '{state}', count(*) from (select from delivery where state = '{state}' limit {MOST_COUNTED}) counted"
    for state in DELIVERY.stored()
    if state != DeliveryState.DELIVERED
)
_STATES = ", ".join(f"('{state}')" for state in ENDPOINT.stored())

# `next_attempt_at` of a pulled delivery is infinity, so it is never due.
GAUGES = f"""
{_WATCHED}
union all select 'oldest_due_delivery_seconds', '', coalesce(extract(epoch from now() - (
    select min(next_attempt_at) from delivery where {DELIVERY.guard("claim")} and next_attempt_at <= now())), 0)
union all select 'endpoints', w.state, (select count(*) from endpoint e where e.state = w.state)
  from (values {_STATES}) w (state)
union all select 'failing_endpoints', '', count(*) from endpoint where failing_since is not null
"""
