"""The SQL of a submit: the batch, its items, its chunks, and its account's place in the fair order.

Lock order everywhere: batch, chunk, sched.
"""

from app.queue.fair_order_sql import current_virtual_time, mark_lowered, woken

NEXT_BATCH_ID = "select next_batch_id()"
NEXT_BATCH_IDS = "select next_batch_id() from generate_series(1, %(count)s)"

INSERT_BATCH = """
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, deadline, expires_at, correlation_id, traceparent,
                   affinity, tags, meta, idempotency_key, request_hash, tells_items, kind, open_ended, line_id, bytes, policy,
                   model_lines, has_sessions, name, est_tokens)
values (%(batch_id)s, %(request_id)s, %(tenant_id)s, %(model)s, %(endpoint)s, %(total)s,
        now() + make_interval(secs => %(deadline_seconds)s),
        case when %(expires)s then now() + make_interval(secs => %(deadline_seconds)s) end,
        %(correlation_id)s, %(traceparent)s, %(affinity)s, %(tags)s, %(meta)s, %(idempotency_key)s, %(request_hash)s,
        %(tells_items)s, %(kind)s, %(open_ended)s, %(line_id)s, %(bytes)s, %(policy)s, %(model_lines)s,
        %(has_sessions)s, %(name)s, %(est_tokens)s)
on conflict (tenant_id, idempotency_key) do nothing
returning run, deadline"""

# Held until the submit's transaction ends. A second submit with the same key gets an answer instead of waiting.
TRY_KEY = "select pg_try_advisory_xact_lock(%(tenant_id)s, hashtext(%(idempotency_key)s))"

FIND_KEY = """
select request_id, request_hash from batch
where tenant_id = %(tenant_id)s and idempotency_key = %(idempotency_key)s"""

COPY_PAYLOAD = """copy item_payload (batch_id, seq, reference, model, endpoint, affinity, est_tokens, wants_json, stored, body,
                                    vault, line_id)
from stdin (format binary)"""

COPY_CHUNKS = """copy chunk (batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline, line_id)
from stdin (format binary)"""
COPY_CHUNKS_TYPES = ("int8", "int2", "int4", "int2", "int4", "int4", "int4[]", "int4", "int4", "timestamptz", "int4")

# The same for chunks under budgets, which wait for money.
COPY_UNRESERVED = """copy chunk (batch_id, run, tenant_id, pool_id, lo, hi, seqs, n, est_tokens, deadline, line_id,
                            state, budgets, maximum_cost, maximum_tokens, expected_cost, expected_tokens)
from stdin (format binary)"""
COPY_UNRESERVED_TYPES = (*COPY_CHUNKS_TYPES, "text", "int4[]", "int8", "int8", "int8", "int8")

# An account that gets work joins the current virtual time of its pool. `deadlines` and `chunks` lower its mark; null: nothing
# became ready.
COUNT_READY = f"""
with changes as (select * from unnest(%(pools)s::int2[], %(tenants)s::int4[], %(ready)s::int4[], %(deadlines)s::timestamptz[],
         %(chunks)s::int8[]) x (pool_id, tenant_id, ready, deadline, chunk_id)),
 now_at as materialized (select p.pool_id, {current_virtual_time("p.pool_id")} as vtime
       from (select distinct pool_id from changes) p)
insert into sched as s (pool_id, tenant_id, ready, vtime, first_deadline, first_chunk)
select c.pool_id, c.tenant_id, c.ready, n.vtime, coalesce(c.deadline, '-infinity'), coalesce(c.chunk_id, 0)
from changes c join now_at n using (pool_id) order by 1, 2
on conflict (pool_id, tenant_id) do update set ready = s.ready + excluded.ready,
  vtime = case when excluded.ready > 0 then {woken("excluded.vtime")} else s.vtime end,
  {mark_lowered("nullif(excluded.first_deadline, '-infinity')", "excluded.first_chunk")}"""
