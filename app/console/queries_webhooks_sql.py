"""The SQL of the pages about webhooks. Deliveries are counted by their partial indexes, and no further than is shown."""

from app.states import DeliveryState, EndpointState

MOST_COUNTED = 100  # deliveries of an endpoint in one state; this value means so many or more
MOST_ENDPOINTS = 1000
LATEST = 14  # deliveries in the strip of an endpoint

_COUNTED = ", ".join(
    f"(select count(*) from (select from delivery d where d.endpoint_id = e.endpoint_id and d.state = '{state}' "
    f"limit {MOST_COUNTED}) c)::int"
    for state in (DeliveryState.PENDING, DeliveryState.HELD, DeliveryState.SENDING, DeliveryState.DEAD)
)

_HOOK = f"""
select e.endpoint_id, e.tenant_id, t.account_id, e.name, e.url, e.queue_id, e.model, e.kinds, e.format, e.state, e.reason,
       e.failing_since, e.failures, e.open_until, e.previous_until, e.ordered, e.max_in_flight, e.max_per_second, e.tags,
       e.metadata, e.created_at, {_COUNTED},
       array(select d.state from delivery d where d.endpoint_id = e.endpoint_id order by d.delivery_id desc limit {LATEST})
from {{source}} join tenant t on t.tenant_id = e.tenant_id"""

_VISIBLE = f"""e.state <> '{EndpointState.CLOSING}' and (%(tenant_id)s::int is null or e.tenant_id = %(tenant_id)s)"""
VIEWS = {
    "all": "true",
    "failing": "(e.failing_since is not null or e.state = 'disabled')",
    "stopped": f"e.state in ('{EndpointState.PAUSED}', '{EndpointState.DISABLED}')",
    "queues": "e.queue_id is not null",
}


def page(view: str) -> str:
    """A page of endpoints, newest first. `view`: a key of VIEWS."""
    chosen = f"""(select * from endpoint e where {_VISIBLE} and {VIEWS[view]}
      and (%(after_at)s::timestamptz is null or (e.created_at, e.endpoint_id) < (%(after_at)s, %(after)s::uuid))
      and (%(account)s::text is null or e.tenant_id = (select tenant_id from tenant where account_id = %(account)s))
      order by e.created_at desc, e.endpoint_id desc limit %(limit)s) e"""
    return _HOOK.format(source=chosen) + " order by e.created_at desc, e.endpoint_id desc"


ONE = f"{_HOOK.format(source='endpoint e')} where e.endpoint_id = %(endpoint_id)s and {_VISIBLE}"

SUMMARY = f"""
select count(*)::int, (count(*) filter (where state = '{EndpointState.DISABLED}'))::int,
       (count(*) filter (where failing_since is not null and state <> '{EndpointState.DISABLED}'))::int,
       (count(*) filter (where open_until > now()))::int
from (select state, failing_since, open_until from endpoint e where {_VISIBLE} limit {MOST_ENDPOINTS}) e"""

LAST_ACCEPTED = """
select a.started_at from (select delivery_id from delivery where endpoint_id = %(endpoint_id)s and state = 'delivered'
  order by delivery_id desc limit 1) d join attempt a on a.delivery_id = d.delivery_id order by a.attempt_id desc limit 1"""
