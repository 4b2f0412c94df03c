"""SQL that reads and changes endpoints: their settings, their state and their health."""

from app.states import DELIVERY, ENDPOINT, DeliveryState, EndpointState

ENDPOINT_COLUMNS = """endpoint_id, tenant_id, name, url, queue_id, model, kinds, format, tags, metadata, ordered,
max_in_flight, max_per_second,
state, reason, failing_since, created_at, modified_at"""

# Its owner does not see an endpoint that is closing.
_VISIBLE = f"tenant_id = %(tenant_id)s and state <> '{EndpointState.CLOSING}'"
_BY_ID = f"{_VISIBLE} and endpoint_id = %(endpoint_id)s"

HOSTS = "select webhook_hosts from tenant where tenant_id = %s"

INSERT_ENDPOINT = f"""
insert into endpoint (endpoint_id, tenant_id, name, url, queue_id, model, kinds, format, tags, metadata, ordered,
                      max_in_flight, max_per_second, state, secret, signing_key, created_at)
values (%(endpoint_id)s, %(tenant_id)s, %(name)s, %(url)s, %(queue_id)s, %(model)s, %(kinds)s, %(format)s, %(tags)s,
        %(metadata)s, %(ordered)s, %(max_in_flight)s, %(max_per_second)s, %(state)s, %(secret)s, %(signing_key)s, %(created_at)s)
returning {ENDPOINT_COLUMNS}
"""

GET_ENDPOINT = f"select {ENDPOINT_COLUMNS} from endpoint where {_BY_ID}"
LOCK_ENDPOINT = f"{GET_ENDPOINT} for no key update"

LOCK_TENANT = "select from tenant where tenant_id = %(tenant_id)s for no key update"
COUNT_ENDPOINTS = f"select count(*) from endpoint where {_VISIBLE}"

LIST_ENDPOINTS = f"""
select {ENDPOINT_COLUMNS} from endpoint
where {_VISIBLE} and (%(after)s::uuid is null or (created_at, endpoint_id) {{beyond}} (%(after_at)s, %(after)s))
order by {{order}} {{direction}}, endpoint_id {{direction}} limit %(limit)s offset %(offset)s
"""

NEWEST_ENDPOINTS = f"""
select {ENDPOINT_COLUMNS} from endpoint
where {_VISIBLE} and url is not null
  and (%(after)s::uuid is null or (created_at, endpoint_id) < (%(after_at)s, %(after)s))
order by created_at desc, endpoint_id desc limit %(limit)s
"""

UPDATE_ENDPOINT = f"""
update endpoint
set name = coalesce(%(name)s, name), url = coalesce(%(url)s, url), kinds = coalesce(%(kinds)s, kinds),
    tags = coalesce(%(tags)s, tags), metadata = coalesce(%(metadata)s, metadata), ordered = %(ordered)s,
    max_in_flight = %(max_in_flight)s, max_per_second = %(max_per_second)s, modified_at = now()
where {_BY_ID}
returning {ENDPOINT_COLUMNS}
"""

CLOSE_ENDPOINT = f"""
update endpoint set state = '{ENDPOINT.target("close")}', modified_at = now()
where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s and {ENDPOINT.guard("close")} returning endpoint_id
"""


def transition(verb: str) -> str:
    """UPDATE for one transition of an endpoint: verify, pause, disable or enable. It also resets the endpoint's health."""
    return f"""
update endpoint set state = '{ENDPOINT.target(verb)}', reason = %(reason)s, modified_at = now(),
       failures = 0, failing_since = null, open_until = null, warned = 0, hinted_at = null
where tenant_id = %(tenant_id)s and endpoint_id = %(endpoint_id)s and {ENDPOINT.guard(verb)}
returning {ENDPOINT_COLUMNS}
"""


IS_ASYMMETRIC = f"select signing_key is not null from endpoint where {_BY_ID}"
ROTATE_SECRET = f"""
update endpoint
set previous_secret = case when %(overlap)s > 0 then secret end,
    previous_until = case when %(overlap)s > 0 then now() + make_interval(secs => %(overlap)s) end,
    secret = %(secret)s, modified_at = now(),
    previous_signing_key = case when %(overlap)s > 0 then signing_key end,
    signing_key = case when signing_key is not null then %(signing_key)s end
where {_BY_ID}
returning {ENDPOINT_COLUMNS}
"""

# Test events are not held: they are sent to endpoints that are not active.
HOLD = f"""
update delivery set state = '{DeliveryState.HELD}'
where endpoint_id = %(endpoint_id)s and {DELIVERY.guard("hold")} and not probe
"""
RELEASE = f"""
update delivery set state = '{DeliveryState.PENDING}', next_attempt_at = greatest(next_attempt_at, now())
where endpoint_id = %(endpoint_id)s and {DELIVERY.guard("release")}
"""

# An event that was written while the state of its endpoint changed may have seen the old state. These two correct that.
RELEASE_MISSED = f"""
update delivery d set state = '{DeliveryState.PENDING}' from endpoint e
where e.state = '{EndpointState.ACTIVE}' and d.endpoint_id = e.endpoint_id and {DELIVERY.guard("release", "d.")}
"""
HOLD_MISSED = f"""
update delivery d set state = '{DeliveryState.HELD}' from endpoint e
where e.state not in ('{EndpointState.ACTIVE}', '{EndpointState.CLOSING}') and d.endpoint_id = e.endpoint_id
  and {DELIVERY.guard("hold", "d.")} and not d.probe
"""

LOCK_HEALTH = """
select now(), endpoint_id, tenant_id, name, state, failures, failing_since, open_until, warned from endpoint
where endpoint_id = any(%s) order by endpoint_id for no key update
"""
SET_HEALTH = """
update endpoint set failures = %(failures)s, failing_since = %(failing_since)s, open_until = %(open_until)s, warned = %(warned)s
where endpoint_id = %(endpoint_id)s
"""

# What is sealed under the master key. An endpoint that is being removed is among them; its secret may still sign.
SEALED = """
select endpoint_id, secret, case when previous_until > now() then previous_secret end, signing_key,
       case when previous_until > now() then previous_signing_key end
from endpoint where secret is not null order by endpoint_id"""
RESEAL = """
update endpoint set secret = %(secret)s, previous_secret = %(previous)s, signing_key = %(signing_key)s,
       previous_signing_key = %(previous_signing_key)s
where endpoint_id = %(endpoint_id)s and secret = %(before)s"""
