"""SQL that claims deliveries, records their outcomes, and reads those that are pulled.

Every locking select is a materialized CTE: the planner may run a plain subquery more than once.
"""

from app.states import DELIVERY, DeliveryState, EndpointState
from app.webhooks.events_sql import NEVER_SENT

SENDER_LOST = "sender_lost"  # error class of an attempt whose notifier died or hung
_OPEN = ", ".join(f"'{state}'" for state in DELIVERY.stored() if state not in DELIVERY.final())

ANY_DUE = f"select exists (select from delivery where {DELIVERY.guard('claim')} and next_attempt_at <= now())"

# An endpoint with a due delivery and no hint, or a hint so old that it counts as lost.
_DUE = f"""e.state in ('{EndpointState.PENDING}', '{EndpointState.ACTIVE}') and e.url is not null
      and (e.open_until is null or e.open_until <= now()) and (e.paced_until is null or e.paced_until <= now())
      and (e.hinted_at is null or e.hinted_at < now() - make_interval(secs => %(rehint)s))
      and e.max_in_flight > (
        select count(*) from delivery s where s.endpoint_id = e.endpoint_id and {DELIVERY.guard("deliver", "s.")})
      and exists (select from delivery d
                  where d.endpoint_id = e.endpoint_id and {DELIVERY.guard("claim", "d.")} and d.next_attempt_at <= now())"""

# Stamps the endpoints as hinted now.
DUE = f"""
with due_endpoints as materialized (
    select endpoint_id from endpoint e
    where {_DUE}
    limit %(limit)s for no key update skip locked
)
update endpoint set hinted_at = now() from due_endpoints where endpoint.endpoint_id = due_endpoints.endpoint_id
returning endpoint.endpoint_id
"""

# Whether a sweep would find something.
WAITS = f"""exists (select from delivery where {DELIVERY.guard("reap")} and lease_until < now())
    or ({ANY_DUE.removeprefix("select ")} and exists (select from endpoint e where {_DUE}))"""

UNHINT = "update endpoint set hinted_at = null where endpoint_id = any(%s)"
UNHINT_ALL = "update endpoint set hinted_at = null where hinted_at is not null"

LOCK_ENDPOINTS = "select from endpoint where endpoint_id = any(%s) order by endpoint_id for no key update"

# `capacity.room` is how many more deliveries may go to an endpoint now: its `max_in_flight` less those in flight, one while its
# breaker is half open, and no more than its rate allows, of which one second's worth may go at once. This statement comes
# after the lock, so that it counts what other notifiers have claimed. If fewer are claimed than there is room for, or none, the
# hint is cleared, so that the sweep hints again at whatever comes due later.
CLAIM = f"""
with capacity as materialized (
    select e.*, greatest(0, least(
      %(most)s,
      case when e.open_until is null then e.max_in_flight else 1 end - (
        select count(*) from delivery s where s.endpoint_id = e.endpoint_id and {DELIVERY.guard("deliver", "s.")}),
      case when e.max_per_second is null then %(most)s else
        floor(greatest(1, e.max_per_second)
              - e.max_per_second * extract(epoch from greatest(e.paced_until, now()) - now())) end))::int as room
    from endpoint e
    where e.endpoint_id = any(%(endpoint_ids)s) and e.state in ('{EndpointState.PENDING}', '{EndpointState.ACTIVE}')
      and (e.open_until is null or e.open_until <= now())
),
due as materialized (
    select d.delivery_id, d.next_attempt_at from capacity cross join lateral (
      select delivery_id, next_attempt_at from delivery d
      where d.endpoint_id = capacity.endpoint_id and {DELIVERY.guard("claim", "d.")} and d.next_attempt_at <= now()
        and not (capacity.ordered and exists (
          select from delivery o where o.endpoint_id = d.endpoint_id and o.batch_id = d.batch_id
            and o.delivery_id < d.delivery_id and o.state in ({_OPEN})))
      order by d.probe desc, d.next_attempt_at, d.delivery_id limit capacity.room for update skip locked) d
),
claimed as (
    update delivery d
    set state = '{DeliveryState.SENDING}', fence = fence + 1, attempts = attempts + 1, claimed_at = now(),
        lease_until = now() + make_interval(secs => %(lease)s)
    from due where d.delivery_id = due.delivery_id
    returning d.delivery_id, d.endpoint_id, d.fence, d.attempts - d.attempts_before as attempt, d.event_id, d.probe,
      due.next_attempt_at as due_at
),
updated_endpoints as (
    update endpoint e
    set hinted_at = case when n.claimed < capacity.room or n.claimed = 0 then null else e.hinted_at end,
        paced_until = case when e.max_per_second is not null and n.claimed > 0
          then greatest(e.paced_until, now()) + make_interval(secs => n.claimed / e.max_per_second) else e.paced_until end
    from capacity cross join lateral (
      select count(*) as claimed from claimed t where t.endpoint_id = capacity.endpoint_id) n
    where e.endpoint_id = capacity.endpoint_id
)
select t.delivery_id, t.fence, t.attempt, t.probe, p.endpoint_id, p.tenant_id, p.url, p.secret,
       case when p.previous_until > now() then p.previous_secret end, p.signing_key,
       case when p.previous_until > now() then p.previous_signing_key end, p.format,
       p.failures > 0 or p.state = '{EndpointState.PENDING}', o.account_id, o.webhook_hosts,
       now(), t.due_at, v.message_id, v.kind, v.model, v.data, v.occurred_at
from claimed t join capacity p using (endpoint_id) join event v using (event_id)
join tenant o on o.tenant_id = p.tenant_id
"""

# All outcomes in one statement, as one array for each column. An outcome whose claim was lost is not written.
RECORD = f"""
with outcome as (
    select * from unnest(%(ids)s::bigint[], %(fences)s::int[], %(states)s::text[], %(delays)s::float8[],
                         %(started)s::timestamptz[], %(durations)s::int[], %(statuses)s::smallint[], %(errors)s::text[],
                         %(bodies)s::bytea[], %(addresses)s::text[], %(reasons)s::text[])
      as o (delivery_id, fence, state, delay, started_at, duration_ms, http_status, error_class, response_body, address, reason)
),
ended as (
    update delivery d
    set state = o.state, lease_until = null, next_attempt_at = now() + make_interval(secs => o.delay), reason = o.reason
    from outcome o where d.delivery_id = o.delivery_id and d.fence = o.fence and {DELIVERY.guard("deliver", "d.")}
    returning d.delivery_id, d.attempts
)
insert into attempt (delivery_id, n, started_at, duration_ms, http_status, error_class, response_body, address)
select ended.delivery_id, ended.attempts, o.started_at, o.duration_ms, o.http_status, o.error_class, o.response_body, o.address
from ended join outcome o using (delivery_id)
returning delivery_id
"""

# Ends expired leases. Nobody knows how such an attempt went, so it is recorded as `sender_lost`, from its start until now.
REAP = f"""
with expired as materialized (
    select delivery_id, attempts - attempts_before >= %(attempts)s as last from delivery
    where {DELIVERY.guard("reap")} and lease_until < now() limit %(limit)s for update skip locked
),
ended as (
    update delivery d
    set state = case when expired.last then '{DeliveryState.DEAD}' else '{DeliveryState.PENDING}' end,
        reason = case when expired.last then %(reason)s end,
        fence = fence + 1, lease_until = null, next_attempt_at = now()
    from expired where d.delivery_id = expired.delivery_id
    returning d.delivery_id, d.endpoint_id, d.state, d.attempts, coalesce(d.claimed_at, now()) as claimed_at
),
recorded as (
    insert into attempt (delivery_id, n, started_at, duration_ms, error_class)
    select delivery_id, attempts, claimed_at, least(extract(epoch from now() - claimed_at) * 1000, 2147483647)::int,
           '{SENDER_LOST}'
    from ended
),
unhinted as (update endpoint e set hinted_at = null from ended where e.endpoint_id = ended.endpoint_id)
select count(*) filter (where state = '{DeliveryState.PENDING}'), count(*) filter (where state = '{DeliveryState.DEAD}')
from ended
"""
PULL = f"""
select d.delivery_id, e.endpoint_id, e.queue_id, e.format, v.message_id, v.kind, v.model, v.data, v.occurred_at
from endpoint e join delivery d using (endpoint_id) join event v using (event_id)
where e.tenant_id = %(tenant_id)s and e.state <> '{EndpointState.CLOSING}'
  and e.queue_id is not null and (%(queue_id)s::text is null or e.queue_id = %(queue_id)s)
  and {DELIVERY.guard("claim", "d.")} and d.next_attempt_at = {NEVER_SENT} and d.delivery_id > %(after)s
order by d.delivery_id limit %(limit)s
"""
ACKNOWLEDGE = f"""
update delivery d set state = '{DeliveryState.DELIVERED}' from endpoint e
where d.delivery_id = any(%(ids)s) and e.endpoint_id = d.endpoint_id and e.tenant_id = %(tenant_id)s
  and e.queue_id is not null and {DELIVERY.guard("acknowledge", "d.")}
"""
