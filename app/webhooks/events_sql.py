"""SQL that writes events, and one delivery for each endpoint that an event is for."""

from app.events import ITEM_KINDS, WAITING_KINDS, EventKind
from app.states import DELIVERY, DeliveryState, EndpointState

NEVER_SENT = "'infinity'::timestamptz"  # `next_attempt_at` of a delivery that its owner pulls
UNREACHABLE = f"('{EndpointState.DISABLED}', '{EndpointState.CLOSING}')"  # endpoints that get no events

_ITEM_KINDS = f"'{{{','.join(ITEM_KINDS)}}}'"
_WAITING_KINDS = f"'{{{','.join(WAITING_KINDS)}}}'"

# A new delivery locks its endpoint against removal, and skips an endpoint whose removal is under way: an event never waits
# for a removal, and the foreign key holds.
_LOCK_ENDPOINT = "for key share of e skip locked"

# State and due time of a new delivery to endpoint e. An endpoint that is paused or not verified yet gets it later. Events of one
# with a queue are fetched. Its URL, which may have a secret, is not read: GPU workers, who write events, may not read it.
_FIRST_STATE = f"""case when e.state = '{EndpointState.ACTIVE}' then '{DELIVERY.initial}' else '{DeliveryState.HELD}' end,
       case when e.queue_id is not null then {NEVER_SENT} else now() end"""


def batch_matches(batch_id: str) -> str:
    """The condition that the batch has the tags and the metadata that endpoint e asks for."""
    return f"""(e.tags = '{{}}' and e.metadata = '{{}}' or exists (
    select from batch b where b.batch_id = {batch_id} and e.tags <@ b.tags and e.metadata <@ coalesce(b.meta, '{{}}')))"""


def subscribed_kind(kind: str, batch_id: str) -> str:
    """The kind under which endpoint e subscribes to an event of this kind.

    In OpenAI's format a batch without any success is completed. Only a batch that was refused for its file, and so has no row,
    is failed.
    """
    ran = f"e.format = 'openai' and {kind} = '{EventKind.BATCH_FAILED}' and {batch_id} is not null"
    return f"case when {ran} then '{EventKind.BATCH_SUCCEEDED}' else {kind} end"


def stable_id(request_id: str, run: str, kind: str, n: str) -> str:
    """The webhook-id of an event of a batch: the same if the event is written again, as after a failover that has lost it.

    A UUID of version 8 from SHA-256 (RFC 9562, B.2), since PostgreSQL has no SHA-1, which version 5 takes. Null if the event is
    of no batch.
    """
    name = f"{request_id} || '/' || {run} || '/' || {kind} || '/' || {n}"
    digits = f"left(encode(sha256(convert_to({name}, 'UTF8')), 'hex'), 32)"
    return f"overlay(overlay({digits} placing '8' from 13) placing '8' from 17)::uuid"


_STABLE_ID = stable_id("x.request_id", "x.run", "x.kind", "x.n")
_STABLE_ITEM_ID = stable_id("b.request_id", "%(run)s::smallint", "x.kind", "x.seq")


EMIT = f"""
with inserted as (
    insert into event (message_id, tenant_id, kind, model, batch_id, run, n, data)
    select coalesce({_STABLE_ID}, gen_random_uuid()), x.tenant_id, x.kind, x.model, x.batch_id, x.run, x.n, x.data
    from unnest(%(tenant_id)s::int[], %(kind)s::text[], %(model)s::text[], %(batch_id)s::bigint[], %(run)s::smallint[],
                %(n)s::int[], %(request_id)s::text[], %(data)s::bytea[])
         x (tenant_id, kind, model, batch_id, run, n, request_id, data)
    on conflict (batch_id, run, kind, n) do nothing
    returning event_id, tenant_id, kind, model, batch_id
)
insert into delivery (event_id, endpoint_id, batch_id, state, next_attempt_at)
select i.event_id, e.endpoint_id, i.batch_id, {_FIRST_STATE}
from inserted i join endpoint e using (tenant_id)
where e.state not in {UNREACHABLE}
  and {subscribed_kind("i.kind", "i.batch_id")} = any(e.kinds)
  and (e.model is null or e.model = i.model)
  and {batch_matches("i.batch_id")}
{_LOCK_ENDPOINT}
"""

EMIT_TEST = f"""
with inserted as (
    insert into event (tenant_id, kind, model, data) values (%(tenant_id)s, %(kind)s, '', %(data)s) returning event_id
)
insert into delivery (event_id, endpoint_id, probe, next_attempt_at)
select event_id, e.endpoint_id, e.url is not null, case when e.url is null then {NEVER_SENT} else now() end
from inserted, endpoint e where e.endpoint_id = %(endpoint_id)s and e.state <> '{EndpointState.CLOSING}'
{_LOCK_ENDPOINT}
returning delivery_id
"""

SUBSCRIBED = f"""
select distinct tenant_id, kind from endpoint cross join unnest(kinds) kind
where state not in {UNREACHABLE} and kind = any(%s)
"""

SUBSCRIBED_TO_ITEMS = f"""
select exists (select from endpoint where tenant_id = %s and state not in {UNREACHABLE} and kinds && {_ITEM_KINDS})
"""


def _of_items(kinds: str, more: str, rows: str) -> str:
    """One event for each item of `rows`, if an endpoint subscribes to its kind, which is one of `kinds`. `n` is the item's
    position. `more`: names and values of its data beside those of every event of an item. `rows` has `seq`, `kind`, `reference`.
    """
    return f"""
with batch as (select b.*, t.account_id from batch b join tenant t using (tenant_id) where batch_id = %(batch_id)s),
 subscribed as materialized (
    select e.endpoint_id, e.kinds, e.state, e.queue_id from endpoint e, batch b
    where e.tenant_id = b.tenant_id and e.state not in {UNREACHABLE} and e.kinds && {kinds}
      and (e.model is null or e.model = b.model) and e.tags <@ b.tags
      and e.metadata <@ coalesce(b.meta, '{{}}')
    {_LOCK_ENDPOINT}
),
 inserted as (
    insert into event (message_id, tenant_id, kind, model, batch_id, run, n, data)
    select {_STABLE_ITEM_ID}, b.tenant_id, x.kind, b.model, b.batch_id, %(run)s, x.seq,
           convert_to(jsonb_build_object('request_id', b.request_id, 'account_id', b.account_id, 'item', x.seq,
                                         'reference', x.reference, 'traceparent', b.traceparent{more})::text, 'UTF8')
    from batch b, ({rows}) x
    where exists (select from subscribed where x.kind = any(subscribed.kinds))
    on conflict (batch_id, run, kind, n) do nothing
    returning event_id, kind
)
insert into delivery (event_id, endpoint_id, batch_id, state, next_attempt_at)
select inserted.event_id, e.endpoint_id, %(batch_id)s, {_FIRST_STATE}
from inserted join subscribed e on inserted.kind = any(e.kinds)
"""


EMIT_ITEMS = _of_items(
    _ITEM_KINDS,
    "",
    f"""
    select r.seq, p.reference, case r.ok when 1 then '{EventKind.ITEM_SUCCEEDED}' else '{EventKind.ITEM_FAILED}' end as kind
    from item_result r join item_payload p on p.batch_id = r.batch_id and p.seq = r.seq
    where r.batch_id = %(batch_id)s and r.run = %(run)s and r.seq = any(%(seqs)s)""",
)

EMIT_WAITING = _of_items(
    _WAITING_KINDS,
    ", 'pipeline', %(pipeline)s::text, 'stage', %(stage)s::text",
    f"""
    select p.seq, p.reference, '{EventKind.ITEM_WAITING}' as kind
    from item_payload p where p.batch_id = %(batch_id)s and p.seq = any(%(seqs)s)""",
)
