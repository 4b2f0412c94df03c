"""All SQL on event, endpoint, delivery and attempt."""

from app.states import DELIVERY, DeliveryState

# ── events ────────────────────────────────────────────────────────────────────────────────────────────────────────

EMIT = f"""
with happened as (
    insert into event (tenant_id, kind, model, batch_id, run, data)
    values (%(tenant_id)s, %(kind)s, %(model)s, %(batch_id)s, %(run)s, %(data)s)
    on conflict (batch_id, run, kind) do nothing
    returning event_id
)
insert into delivery (event_id, endpoint_id, state)
select happened.event_id, endpoint.endpoint_id, '{DELIVERY.initial}'
from happened, endpoint
where endpoint.tenant_id = %(tenant_id)s
  and endpoint.enabled
  and %(kind)s = any(endpoint.kinds)
  and (endpoint.model is null or endpoint.model = %(model)s)
"""

# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────

ENDPOINT_COLUMNS = (
    "endpoint_id, tenant_id, name, url, model, kinds, format, enabled, disabled_reason, created_at, modified_at"
)

INSERT_ENDPOINT = f"""
insert into endpoint (endpoint_id, tenant_id, name, url, model, kinds, enabled, secret)
values (%(endpoint_id)s, %(tenant_id)s, %(name)s, %(url)s, %(model)s, %(kinds)s, %(enabled)s, %(secret)s)
returning {ENDPOINT_COLUMNS}
"""

GET_ENDPOINT = f"""
select {ENDPOINT_COLUMNS} from endpoint where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s
"""

COUNT_ENDPOINTS = "select count(*) from endpoint where tenant_id = %(tenant_id)s"

LIST_ENDPOINTS = """
select {columns} from endpoint where tenant_id = %(tenant_id)s
order by {order} {direction}, endpoint_id limit %(limit)s offset %(offset)s
"""

UPDATE_ENDPOINT = f"""
update endpoint
set name = coalesce(%(name)s, name),
    url = coalesce(%(url)s, url),
    kinds = coalesce(%(kinds)s, kinds),
    enabled = coalesce(%(enabled)s, enabled),
    disabled_reason = case when %(enabled)s is null then disabled_reason end,
    failing_since = case when %(enabled)s then null else failing_since end,
    modified_at = now()
where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s
returning {ENDPOINT_COLUMNS}
"""

DELETE_ENDPOINT = f"""
delete from endpoint where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s returning {ENDPOINT_COLUMNS}
"""

DISABLE_ENDPOINT = """
update endpoint set enabled = false, disabled_reason = %(reason)s, modified_at = now()
where endpoint_id = %(endpoint_id)s and enabled
"""

ENDPOINT_WORKS = "update endpoint set failing_since = null where endpoint_id = %s and failing_since is not null"

ENDPOINT_FAILS = """
update endpoint
set failing_since = coalesce(failing_since, now()),
    enabled = coalesce(failing_since, now()) > now() - make_interval(secs => %(patience)s),
    disabled_reason = case when failing_since <= now() - make_interval(secs => %(patience)s)
                           then 'every attempt failed since ' || failing_since::text end
where endpoint_id = %(endpoint_id)s and enabled
  and (failing_since is null or failing_since <= now() - make_interval(secs => %(patience)s))
"""

# ── deliveries ────────────────────────────────────────────────────────────────────────────────────────────────────
# The locking select is a materialized CTE: as a plain subquery the planner may run it more than once.

CLAIM = f"""
with due as materialized (
    select delivery_id from delivery
    where delivery_id = %(delivery_id)s and {DELIVERY.guard("claim")} and next_attempt_at <= now()
    for update skip locked
)
update delivery
set state = '{DeliveryState.SENDING}', fence = fence + 1, attempts = attempts + 1,
    lease_until = now() + make_interval(secs => %(lease)s)
from due, event, endpoint
where delivery.delivery_id = due.delivery_id
  and event.event_id = delivery.event_id
  and endpoint.endpoint_id = delivery.endpoint_id and endpoint.enabled
returning delivery.delivery_id, delivery.fence, delivery.attempts,
          endpoint.endpoint_id, endpoint.url, endpoint.secret, endpoint.format,
          event.message_id, event.kind, event.model, event.data, event.occurred_at
"""

_TARGETS = {"deliver": DeliveryState.DELIVERED, "retry": DeliveryState.PENDING, "give_up": DeliveryState.DEAD}

RECORD = {
    verb: f"""
with outcome as (
    update delivery
    set state = '{target}', lease_until = null, hinted_at = null,
        next_attempt_at = now() + make_interval(secs => %(delay)s)
    where delivery_id = %(delivery_id)s and fence = %(fence)s and {DELIVERY.guard(verb)}
    returning delivery_id, attempts
)
insert into attempt (delivery_id, n, started_at, duration_ms, http_status, error_class, response_body)
select delivery_id, attempts, %(started_at)s, %(duration_ms)s, %(status)s, %(error)s, %(body)s from outcome
"""
    for verb, target in _TARGETS.items()
}

REAP = f"""
with lost as materialized (
    select delivery_id from delivery
    where {DELIVERY.guard("reap")} and lease_until < now() and attempts < %(attempts)s
    limit %(limit)s for update skip locked
)
update delivery
set state = '{DeliveryState.PENDING}', fence = fence + 1, lease_until = null, hinted_at = null, next_attempt_at = now()
from lost where delivery.delivery_id = lost.delivery_id
"""

BURY = f"""
with lost as materialized (
    select delivery_id from delivery
    where {DELIVERY.guard("give_up")} and lease_until < now() and attempts >= %(attempts)s
    limit %(limit)s for update skip locked
)
update delivery set state = '{DeliveryState.DEAD}', fence = fence + 1, lease_until = null
from lost where delivery.delivery_id = lost.delivery_id
"""

OVERDUE = f"""
with due as materialized (
    select delivery_id from delivery join endpoint using (endpoint_id)
    where {DELIVERY.guard("claim")} and next_attempt_at <= now() and endpoint.enabled
      and (hinted_at is null or hinted_at < now() - make_interval(secs => %(rehint)s))
    order by next_attempt_at limit %(limit)s
    for update of delivery skip locked
)
update delivery set hinted_at = now() from due where delivery.delivery_id = due.delivery_id
returning delivery.delivery_id
"""

UNHINT = f"update delivery set hinted_at = null where delivery_id = any(%s) and {DELIVERY.guard('claim')}"
