"""All SQL on event, endpoint, delivery and attempt."""

from app.states import DELIVERY, ENDPOINT, DeliveryState, EndpointState

TEST_KIND = "test"  # of an event that is sent to one endpoint, on request or to verify it
SENDER_LOST = "sender_lost"  # of an attempt whose notifier died or hung
NEVER_SENT = "'infinity'::timestamptz"  # when a delivery is due that is fetched
_OPEN = ", ".join(f"'{state}'" for state in DELIVERY.stored() if state not in DELIVERY.final())

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

# Of which endpoints nothing is told, now or later.
DEAF = f"('{EndpointState.DISABLED}', '{EndpointState.CLOSING}')"

# Whoever writes a delivery holds its endpoint, and passes over one that is being removed at this moment: nobody waits, and the
# foreign key holds.
_HELD = "for key share of e skip locked"

# How the delivery to endpoint e begins: one that is not active yet, or paused, gets it when it is.
_BEGINS = f"""case when e.state = '{EndpointState.ACTIVE}' then '{DELIVERY.initial}' else '{DeliveryState.HELD}' end,
       case when e.url is null then {NEVER_SENT} else now() end"""


def chosen(batch_id: str) -> str:
    """Whether endpoint e wants to hear of this batch."""
    return f"""(e.tags = '{{}}' and e.metadata = '{{}}' or exists (
    select from batch b where b.batch_id = {batch_id} and e.tags <@ b.tags and e.metadata <@ coalesce(b.meta, '{{}}')))"""


def heard(kind: str, batch_id: str) -> str:
    """What an event of this kind is to endpoint e, of the kinds that it may hear.

    A batch that ran in vain is a completed one in OpenAI's form; only one that was refused for its file, and so never was in the
    queue, has failed.
    """
    in_vain = f"e.format = 'openai' and {kind} = 'batch.failed' and {batch_id} is not null"
    return f"case when {in_vain} then 'batch.succeeded' else {kind} end"


EMIT = f"""
with happened as (
    insert into event (tenant_id, kind, model, batch_id, run, n, data)
    values (%(tenant_id)s, %(kind)s, %(model)s, %(batch_id)s, %(run)s, %(n)s, %(data)s)
    on conflict (batch_id, run, kind, n) do nothing
    returning event_id
)
insert into delivery (event_id, endpoint_id, batch_id, state, next_attempt_at)
select happened.event_id, e.endpoint_id, %(batch_id)s, {_BEGINS}
from happened, endpoint e
where e.tenant_id = %(tenant_id)s and e.state not in {DEAF}
  and {heard("%(kind)s::text", "%(batch_id)s::bigint")} = any(e.kinds)
  and (e.model is null or e.model = %(model)s)
  and {chosen("%(batch_id)s")}
{_HELD}
"""

TEST = f"""
with happened as (
    insert into event (tenant_id, kind, model, data) values (%(tenant_id)s, %(kind)s, '', %(data)s) returning event_id
)
insert into delivery (event_id, endpoint_id, probe, next_attempt_at)
select event_id, e.endpoint_id, e.url is not null, case when e.url is null then {NEVER_SENT} else now() end
from happened, endpoint e where e.endpoint_id = %(endpoint_id)s and e.state <> '{EndpointState.CLOSING}'
{_HELD}
returning delivery_id
"""

WANTED = f"""
select distinct tenant_id, kind from endpoint cross join unnest(kinds) kind
where state not in {DEAF} and kind = any(%s)
"""

HEARS_ITEMS = f"""
select exists (select from endpoint where tenant_id = %s and state not in {DEAF}
               and kinds && '{{item.succeeded,item.failed}}')
"""

# One event for each item, if anybody is to hear of it; `n` tells them apart.
EMIT_ITEMS = f"""
with batch as (select b.*, t.account_id from batch b join tenant t using (tenant_id) where batch_id = %(batch_id)s),
 hears as materialized (
    select e.endpoint_id, e.kinds, e.state, e.url from endpoint e, batch b
    where e.tenant_id = b.tenant_id and e.state not in {DEAF} and e.kinds && '{{item.succeeded,item.failed}}'
      and (e.model is null or e.model = b.model) and e.tags <@ b.tags
      and e.metadata <@ coalesce(b.meta, '{{}}')
    {_HELD}
),
 happened as (
    insert into event (tenant_id, kind, model, batch_id, run, n, data)
    select b.tenant_id, x.kind, b.model, b.batch_id, %(run)s, r.seq,
           convert_to(jsonb_build_object('request_id', b.request_id, 'account_id', b.account_id, 'item', r.seq,
                                         'reference', p.reference, 'traceparent', b.traceparent)::text, 'UTF8')
    from batch b, item_result r
    join item_payload p on p.batch_id = r.batch_id and p.seq = r.seq
    cross join lateral (select case r.ok when 1 then 'item.succeeded' else 'item.failed' end as kind) x
    where r.batch_id = %(batch_id)s and r.run = %(run)s and r.seq = any(%(seqs)s)
      and exists (select from hears where x.kind = any(hears.kinds))
    on conflict (batch_id, run, kind, n) do nothing
    returning event_id, kind
)
insert into delivery (event_id, endpoint_id, batch_id, state, next_attempt_at)
select h.event_id, e.endpoint_id, %(batch_id)s, {_BEGINS}
from happened h join hears e on h.kind = any(e.kinds)
"""

# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────

ENDPOINT_COLUMNS = """endpoint_id, tenant_id, name, url, queue_id, model, kinds, format, tags, metadata, ordered,
max_in_flight, max_per_second,
state, reason, failing_since, created_at, modified_at"""

# To its owner one that is closing is not there any more.
_THERE = f"tenant_id = %(tenant_id)s and state <> '{EndpointState.CLOSING}'"
_THIS = f"{_THERE} and endpoint_id = %(endpoint_id)s"

HOSTS = "select webhook_hosts from tenant where tenant_id = %s"

INSERT_ENDPOINT = f"""
insert into endpoint (endpoint_id, tenant_id, name, url, queue_id, model, kinds, format, tags, metadata, ordered,
                      max_in_flight, max_per_second, state, secret, signing_key)
values (%(endpoint_id)s, %(tenant_id)s, %(name)s, %(url)s, %(queue_id)s, %(model)s, %(kinds)s, %(format)s, %(tags)s,
        %(metadata)s, %(ordered)s, %(max_in_flight)s, %(max_per_second)s, %(state)s, %(secret)s, %(signing_key)s)
returning {ENDPOINT_COLUMNS}
"""

GET_ENDPOINT = f"select {ENDPOINT_COLUMNS} from endpoint where {_THIS}"

LOCK_TENANT = "select from tenant where tenant_id = %(tenant_id)s for no key update"
COUNT_ENDPOINTS = f"select count(*) from endpoint where {_THERE}"

LIST_ENDPOINTS = f"""
select {{columns}} from endpoint where {_THERE}
order by {{order}} {{direction}}, endpoint_id limit %(limit)s offset %(offset)s
"""

NEWEST_ENDPOINTS = f"""
select {ENDPOINT_COLUMNS} from endpoint
where {_THERE} and url is not null
  and (%(after)s::uuid is null or (created_at, endpoint_id) < (
    select a.created_at, a.endpoint_id from endpoint a where a.tenant_id = %(tenant_id)s and a.endpoint_id = %(after)s))
order by created_at desc, endpoint_id desc limit %(limit)s
"""

UPDATE_ENDPOINT = f"""
update endpoint
set name = coalesce(%(name)s, name), url = coalesce(%(url)s, url), kinds = coalesce(%(kinds)s, kinds),
    tags = coalesce(%(tags)s, tags), metadata = coalesce(%(metadata)s, metadata), ordered = %(ordered)s,
    max_in_flight = %(max_in_flight)s, max_per_second = %(max_per_second)s, modified_at = now()
where {_THIS}
returning {ENDPOINT_COLUMNS}
"""

CLOSE_ENDPOINT = f"""
update endpoint set state = '{ENDPOINT.target("close")}', modified_at = now()
where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s and {ENDPOINT.guard("close")} returning endpoint_id
"""


def move_endpoint(verb: str) -> str:
    """UPDATE that moves an endpoint of a tenant: verify, pause, disable, enable. What it had failed at is forgotten."""
    target = next(t.target for t in ENDPOINT.transitions if t.verb == verb)
    return f"""
update endpoint set state = '{target}', reason = %(reason)s, modified_at = now(),
       failures = 0, failing_since = null, open_until = null, warned = 0, hinted_at = null
where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s and {ENDPOINT.guard(verb)}
returning {ENDPOINT_COLUMNS}
"""


# A test is sent to an endpoint that is not active, so it is not held.
HOLD = f"""
update delivery set state = '{DeliveryState.HELD}'
where endpoint_id = %(endpoint_id)s and {DELIVERY.guard("hold")} and not probe
"""
RELEASE = f"""
update delivery set state = '{DeliveryState.PENDING}', next_attempt_at = greatest(next_attempt_at, now())
where endpoint_id = %(endpoint_id)s and {DELIVERY.guard("release")}
"""

# An event that was written while its endpoint changed its state may have found the old one; these, now and then, mend it.
RELEASE_STRAYS = f"""
update delivery d set state = '{DeliveryState.PENDING}' from endpoint e
where e.state = '{EndpointState.ACTIVE}' and d.endpoint_id = e.endpoint_id and {DELIVERY.guard("release", "d.")}
"""
HOLD_STRAYS = f"""
update delivery d set state = '{DeliveryState.HELD}' from endpoint e
where e.state not in ('{EndpointState.ACTIVE}', '{EndpointState.CLOSING}') and d.endpoint_id = e.endpoint_id
  and {DELIVERY.guard("hold", "d.")} and not d.probe
"""

ROTATE_SECRET = f"""
update endpoint
set previous_secret = case when %(overlap)s > 0 then secret end,
    previous_until = case when %(overlap)s > 0 then now() + make_interval(secs => %(overlap)s) end,
    secret = %(secret)s, modified_at = now()
where {_THIS}
returning {ENDPOINT_COLUMNS}
"""

# ── deliveries ────────────────────────────────────────────────────────────────────────────────────────────────────
# The locking select is a materialized CTE: as a plain subquery the planner may run it more than once.

ANY_DUE = f"select exists (select from delivery where {DELIVERY.guard('claim')} and next_attempt_at <= now())"

# Endpoints with something to send that nobody was told of, or so long ago that the hint counts as lost; stamped as told now.
DUE = f"""
with waiting as materialized (
    select endpoint_id from endpoint e
    where e.state in ('{EndpointState.PENDING}', '{EndpointState.ACTIVE}') and e.url is not null
      and (e.open_until is null or e.open_until <= now()) and (e.paced_until is null or e.paced_until <= now())
      and (e.hinted_at is null or e.hinted_at < now() - make_interval(secs => %(rehint)s))
      and e.max_in_flight > (
        select count(*) from delivery s where s.endpoint_id = e.endpoint_id and {DELIVERY.guard("deliver", "s.")})
      and exists (select from delivery d
                  where d.endpoint_id = e.endpoint_id and {DELIVERY.guard("claim", "d.")} and d.next_attempt_at <= now())
    limit %(limit)s for no key update skip locked
)
update endpoint set hinted_at = now() from waiting where endpoint.endpoint_id = waiting.endpoint_id
returning endpoint.endpoint_id
"""

UNHINT = "update endpoint set hinted_at = null where endpoint_id = any(%s)"

LOCK_ENDPOINTS = "select from endpoint where endpoint_id = any(%s) order by endpoint_id for no key update"

# How many more may be sent to each endpoint now: its limit less what is on its way, one while its breaker is being tried, and no
# more than its rate allows, of which a second's worth may come at once. A second statement after the lock, so that it counts
# what others have taken before. Where less is taken than there is room for, or nothing, the hint is forgotten: whatever is to
# be sent then, at once or when the rate allows it, is hinted anew.
CLAIM = f"""
with place as materialized (
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
    select d.delivery_id from place cross join lateral (
      select delivery_id from delivery d
      where d.endpoint_id = place.endpoint_id and {DELIVERY.guard("claim", "d.")} and d.next_attempt_at <= now()
        and not (place.ordered and exists (
          select from delivery o where o.endpoint_id = d.endpoint_id and o.batch_id = d.batch_id
            and o.delivery_id < d.delivery_id and o.state in ({_OPEN})))
      order by d.probe desc, d.next_attempt_at, d.delivery_id limit place.room for update skip locked) d
),
taken as (
    update delivery d
    set state = '{DeliveryState.SENDING}', fence = fence + 1, attempts = attempts + 1, claimed_at = now(),
        lease_until = now() + make_interval(secs => %(lease)s)
    from due where d.delivery_id = due.delivery_id
    returning d.delivery_id, d.endpoint_id, d.fence, d.attempts - d.attempts_before as attempt, d.event_id, d.probe
),
noted as (
    update endpoint e
    set hinted_at = case when n.taken < place.room or n.taken = 0 then null else e.hinted_at end,
        paced_until = case when e.max_per_second is not null and n.taken > 0
          then greatest(e.paced_until, now()) + make_interval(secs => n.taken / e.max_per_second) else e.paced_until end
    from place cross join lateral (
      select count(*) as taken from taken t where t.endpoint_id = place.endpoint_id) n
    where e.endpoint_id = place.endpoint_id
)
select t.delivery_id, t.fence, t.attempt, t.probe, p.endpoint_id, p.tenant_id, p.url, p.secret,
       case when p.previous_until > now() then p.previous_secret end, p.signing_key, p.format,
       p.failures > 0 or p.state = '{EndpointState.PENDING}', o.webhook_hosts,
       now(), v.message_id, v.kind, v.model, v.data, v.occurred_at
from taken t join place p using (endpoint_id) join event v using (event_id)
join tenant o on o.tenant_id = p.tenant_id
"""

# An array per column, all outcomes of a moment in one statement. What has lost its claim is not written.
RECORD = f"""
with given as (
    select * from unnest(%(ids)s::bigint[], %(fences)s::int[], %(states)s::text[], %(delays)s::float8[],
                         %(started)s::timestamptz[], %(durations)s::int[], %(statuses)s::smallint[], %(errors)s::text[],
                         %(bodies)s::bytea[], %(addresses)s::text[], %(reasons)s::text[])
      as g (delivery_id, fence, state, delay, started_at, duration_ms, http_status, error_class, response_body, address, reason)
),
outcome as (
    update delivery d
    set state = g.state, lease_until = null, next_attempt_at = now() + make_interval(secs => g.delay), reason = g.reason
    from given g where d.delivery_id = g.delivery_id and d.fence = g.fence and {DELIVERY.guard("deliver", "d.")}
    returning d.delivery_id, d.attempts
)
insert into attempt (delivery_id, n, started_at, duration_ms, http_status, error_class, response_body, address)
select o.delivery_id, o.attempts, g.started_at, g.duration_ms, g.http_status, g.error_class, g.response_body, g.address
from outcome o join given g using (delivery_id)
returning delivery_id
"""

# Nobody knows what came of it, if anything; the attempt stands there all the same, from its beginning until now.
REAP = f"""
with lost as materialized (
    select delivery_id, attempts - attempts_before >= %(attempts)s as last from delivery
    where {DELIVERY.guard("reap")} and lease_until < now() limit %(limit)s for update skip locked
),
ended as (
    update delivery d
    set state = case when lost.last then '{DeliveryState.DEAD}' else '{DeliveryState.PENDING}' end,
        reason = case when lost.last then %(reason)s end,
        fence = fence + 1, lease_until = null, next_attempt_at = now()
    from lost where d.delivery_id = lost.delivery_id
    returning d.delivery_id, d.endpoint_id, d.state, d.attempts, coalesce(d.claimed_at, now()) as claimed_at
),
noted as (
    insert into attempt (delivery_id, n, started_at, duration_ms, error_class)
    select delivery_id, attempts, claimed_at, least(extract(epoch from now() - claimed_at) * 1000, 2147483647)::int,
           '{SENDER_LOST}'
    from ended
),
told as (update endpoint e set hinted_at = null from ended where e.endpoint_id = ended.endpoint_id)
select count(*) filter (where state = '{DeliveryState.PENDING}'), count(*) filter (where state = '{DeliveryState.DEAD}')
from ended
"""

# ── health ────────────────────────────────────────────────────────────────────────────────────────────────────────

HEALTH = """
select now(), endpoint_id, tenant_id, state, failures, failing_since, open_until, warned from endpoint
where endpoint_id = any(%s) order by endpoint_id for no key update
"""
SET_HEALTH = """
update endpoint set failures = %(failures)s, failing_since = %(failing_since)s, open_until = %(open_until)s, warned = %(warned)s
where endpoint_id = %(endpoint_id)s
"""

# ── events that are fetched ───────────────────────────────────────────────────────────────────────────────────────

WAITING = f"""
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
