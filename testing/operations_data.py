"""An installation with a history: engines, samples, decisions, changes, webhooks, deliveries and keys, as rows.

The numbers follow fixed waves, so that two runs draw the same. The times are relative to now.
"""
# ruff: noqa: E501 - rows of data

from app.db.pool import Connection

HOOK = "8cc5787500065c79875073a4aefd0833"  # the md5 of its name, "support hook"; of acme
ACCOUNTS = ("acme", "globex", "initech", "umbrella")

_TENANTS = """
insert into tenant (account_id, name, weight, max_inflight_tokens)
select a, a, w, m from unnest(%(accounts)s::text[], '{2,1,1,0.5}'::float8[], '{400000,200000,200000,100000}'::bigint[]) t (a, w, m)
on conflict do nothing"""
_POOLS = "insert into pool (model, context_window) values ('qwen3-32b', 32768), ('llama-3.3-70b', 32768) on conflict do nothing"
_WORKERS = """
insert into worker (pool_id, host, pid, lease_until)
select pool_id, host, 4000 + row_number() over (), now() + interval '1 hour'
from pool, unnest('{gpu-03,gpu-07,gpu-09}'::text[]) h (host) where model = 'qwen3-32b'"""
_ENGINES = """
insert into engine (name, pool_id, url, mode, slots, state, worker_id, reason, signal, value, threshold, reason_since, allowance,
  batch_in_flight, in_engine, sync_in_flight, version, protection, max_model_len, scheduling_policy, start_seconds, detail, expected_at)
select e.name, (select pool_id from pool where model = e.model), 'http://10.0.0.' || e.n || ':8000', 'managed', 256, e.state,
  (select worker_id from worker where host = e.host), e.reason, e.signal, e.value, e.threshold, now() - e.held::interval,
  e.allowance, e.batch, jsonb_build_object('0', e.batch), e.sync, '0.32.0', e.protection, 32768, 'priority', 84, null,
  case when e.state <> 'ready' then now() + interval '90 seconds' end
from (values
  (1, 'east-1', 'qwen3-32b', 'ready', 'gpu-03', 'harvest', null, null::float8, null::float8, '14 min', 138, 132, 96, 'inside'),
  (2, 'east-2', 'qwen3-32b', 'ready', 'gpu-07', 'closed_sync_waiting', 'sync_waiting', 6, 0, '40 s', 0, 14, 231, 'inside'),
  (3, 'west-1', 'qwen3-32b', 'ready', 'gpu-09', 'ramp', null, null, null, '3 min', 41, 38, 60, 'outside'),
  (4, 'south-1', 'llama-3.3-70b', 'down', null, 'engine_starting', null, null, null, '8 min', 0, 0, 0, 'inside')
) e (n, name, model, state, host, reason, signal, value, threshold, held, allowance, batch, sync, protection)"""
_SAMPLES = """
insert into engine_sample (engine_id, at, seconds, reason, closed_seconds, allowance, batch, sync, sync_waiting, frozen, kv_usage,
  step_ms, predicted_ms, allowed_ms, batch_tokens, sync_tokens, yields, evictions)
select engine_id, at, 10, reason, case when reason like 'closed%%' then 10 else 0 end, case when reason like 'closed%%' then 0 else 130 + 12 * wave end,
  case when reason like 'closed%%' then 14 else 124 + 12 * wave end, 96 + 40 * tide + burst * 110, burst * 5,
  case when reason like 'closed%%' then 14 else 0 end, 0.42 + 0.08 * tide + 0.14 * burst, 20.2 + 1.2 * wave + burst * 3,
  20.6 + 0.9 * wave, case when protection = 'inside' then 25 end, 10 * greatest(0, (5600 - 900 * tide - 5600 * burst)),
  10 * (4500 + 1500 * tide + 5600 * burst), 0, 0
from (
  select e.engine_id, e.protection, at, sin(n / 9.0 + e.engine_id) + j.jitter as wave, sin(n / 37.0 + 2 * e.engine_id) + j.jitter / 2 as tide, b.burst,
    case when b.burst > 0.5 then 'closed_sync_waiting' when e.name = 'west-1' then 'ramp' else 'harvest' end as reason
  from engine e, generate_series(0, %(samples)s) n, lateral (select now() - n * interval '10 s' as at) t,
    lateral (select (hashint4(n * 7 + e.engine_id::int) %% 1000) / 3000.0 as jitter) j,
    lateral (select case when (n + 23 * e.engine_id) %% 131 < 7 then 1.0 - ((n + 23 * e.engine_id) %% 131) / 9.0 else 0 end as burst) b
  where e.name <> 'south-1' or n > 50) w
on conflict do nothing"""
_DECISIONS = """
insert into decision (engine_id, at, layer, was_allowance, allowance, was_reason, reason, signal, value, threshold, in_flight, credited)
select e.engine_id, now() - d.ago::interval, 'l2', d.was, d.became, d.was_reason, d.reason, d.signal, d.value, d.threshold, d.flight, 0
from engine e, (values
  ('40 s', 48, 0, 'yield_burst', 'closed_sync_waiting', 'sync_waiting', 6::float8, 0::float8, 14),
  ('40.3 s', 131, 48, 'harvest', 'yield_burst', 'sync_prompt_tokens', 8410, 3072, 127),
  ('317 s', 61, 118, 'shrink_latency', 'harvest', null, null, null, 60),
  ('339 s', 112, 61, 'harvest', 'shrink_latency', 'step_seconds', 0.0261, 0.025, 109),
  ('618 s', 0, 96, 'hold', 'harvest', 'hold_seconds', 0, null, 0),
  ('634 s', 129, 0, 'harvest', 'closed_sync_waiting', 'sync_waiting', 9, 0, 9),
  ('3000 s', 100, 0, 'harvest', 'closed_stale', 'age_seconds', 3.1, 2, 80)
) d (ago, was, became, was_reason, reason, signal, value, threshold, flight) where e.name = 'east-2'"""
_CHANGES = """
insert into change (at, kind, subject, tenant_id, data)
select now() - c.ago::interval, c.kind, c.subject, (select tenant_id from tenant where account_id = c.account), c.data::jsonb
from (values
  ('8 min', 'engine.down', 'south-1', null, '{"engine": "south-1", "reason": "the process has ended", "seconds": 2400}'),
  ('18 min', 'part.started', 'gpu-worker west-1', null, '{"version": "0.1.1", "host": "gpu-09", "pid": 4711}'),
  ('18 min 1 s', 'version.changed', 'gpu-worker west-1', null, '{"from": "0.1.0", "to": "0.1.1"}'),
  ('34 min', 'gate.opened', 'west-1', null, '{"engine": "west-1", "reason": "ramp"}'),
  ('34 min 12 s', 'gate.closed', 'west-1', null, '{"engine": "west-1", "reason": "closed_stale", "detail": "GET /metrics timed out"}'),
  ('45 min', 'breaker.opened', 'support hook', 'acme', '{"failures": 5, "until": "2026-11-23T14:40:00Z", "delivery": 12, "endpoint": "8cc5787500065c79875073a4aefd0833"}'),
  ('53 min', 'engine.ready', 'south-1', null, '{"engine": "south-1"}'),
  ('62 min', 'engine.down', 'south-1', null, '{"engine": "south-1", "reason": "the process has ended"}'),
  ('3 hours', 'budget.spent', 'search-eval', 'globex', '{"message": "25.00 USD of 25.00 USD"}'),
  ('7 hours', 'steward.leads', 'steward', null, '{"host": "ctl-1"}'),
  ('7 hours 1 s', 'part.started', 'api', null, '{"version": "0.1.1", "host": "ctl-1", "pid": 4}'),
  ('29 hours', 'engine.drained', 'west-1', null, '{"engine": "west-1"}'),
  ('28 hours', 'engine.undrained', 'west-1', null, '{"engine": "west-1"}')
) c (ago, kind, subject, account, data)"""
_HOOKS = """
insert into endpoint (endpoint_id, tenant_id, name, url, queue_id, model, kinds, format, state, secret, reason, failing_since,
  failures, open_until, created_at, max_per_second, ordered)
select md5(h.name)::uuid, (select tenant_id from tenant where account_id = h.account), h.name, h.url, h.queue, null,
  '{batch.queued,batch.succeeded,batch.failed,endpoint.disabled}', h.format, h.state, case when h.url is not null then 'x'::bytea end, h.reason,
  now() - h.failing::interval, h.failures, now() + h.pause::interval, now() - h.age::interval, h.rate, h.rate is not null
from (values
  ('support hook', 'acme', 'https://hooks.support.example/slackwater?key=abc', null, 'workers_ai', 'active', null, '41 min', 7, '4 min', '40 days', null::float8),
  ('evals', 'acme', 'https://ci.acme.example/batches/done', null, 'openai', 'active', null, null, 0, null, '90 days', 20),
  ('nightly queue', 'acme', null, 'nightly', 'workers_ai', 'active', null, null, 0, null, '12 days', null),
  ('search', 'globex', 'https://search.globex.example/in', null, 'workers_ai', 'active', null, null, 0, null, '200 days', null),
  ('old importer', 'initech', 'https://importer.initech.example/events', null, 'workers_ai', 'disabled', 'every attempt failed since 2026-11-19 08:12:44 UTC', null, 0, null, '300 days', null),
  ('staging', 'initech', 'https://staging.initech.example:8443/hook', null, 'workers_ai', 'paused', null, null, 0, null, '5 days', null)
) h (name, account, url, queue, format, state, reason, failing, failures, pause, age, rate)"""
_EVENTS = """
insert into event (tenant_id, kind, model, batch_id, data, occurred_at)
select e.tenant_id, (array['batch.queued', 'batch.succeeded', 'batch.failed'])[1 + n % 3], 'qwen3-32b', n * 10 + e.tenant_id,
  convert_to(json_build_object('request_id', md5('b' || n)::uuid::text, 'account_id', 'acme')::text, 'utf8'), now() - (1000 - n) * interval '7 min'
from (select distinct tenant_id from endpoint) e, generate_series(900, 1000) n"""
_DELIVERIES = """
insert into delivery (event_id, endpoint_id, batch_id, state, attempts, next_attempt_at, reason)
select v.event_id, e.endpoint_id, v.batch_id, case
    when e.name = 'support hook' and v.event_id % 100 > 93 then 'pending'
    when e.name = 'nightly queue' and v.event_id % 100 > 80 then 'pending'
    when e.name = 'staging' and v.event_id % 100 > 90 then 'held'
    when e.name = 'old importer' and v.event_id % 100 > 40 or e.name = 'evals' and v.event_id % 37 = 0 then 'dead' else 'delivered' end,
  case when e.url is null then 0 when e.name = 'support hook' and v.event_id % 100 > 93 then 3 else 1 end,
  case when e.url is null then 'infinity' else now() + interval '4 min' end, null
from event v join endpoint e using (tenant_id) order by v.event_id"""
_ATTEMPTS = """
insert into attempt (delivery_id, n, started_at, duration_ms, http_status, error_class, response_body, address)
select d.delivery_id, i.n, v.occurred_at + i.n * interval '20 s', 40 + (d.delivery_id * 37) % 400 + case when f then 9000 else 0 end,
  case when f then case when i.n % 2 = 0 then 503 end else 204 end, case when f then case when i.n % 2 = 0 then 'http_5xx' else 'timeout' end end,
  case when f and i.n % 2 = 0 then convert_to('<h1>Service <script>alert(1)</script> unavailable</h1>', 'utf8') end, '192.0.2.17'
from delivery d join event v using (event_id), generate_series(1, d.attempts) i (n), lateral (select d.state in ('pending', 'dead') as f) f"""
_KEYS = """
insert into api_key (key_id, tenant_id, secret_hash, name, created_at, last_used_at, expires_at, revoked_at, requests_per_minute,
  tokens_per_minute, pins)
select k.id, (select tenant_id from tenant where account_id = k.account), 'x', k.name, now() - k.age::interval,
  now() - k.used::interval, now() + k.ends::interval, now() - k.gone::interval, k.requests, k.tokens, k.pins::text[]
from (values
  ('k7f3a9c2', 'acme', 'support service', '200 days', '20 s', null, null, 600, 400000::bigint, '{workflow=support}'),
  ('k1b84d0e', 'acme', 'nightly evaluations', '90 days', '7 hours', '12 days', null, null, null, '{workflow=evals,critical=false}'),
  ('k93c11fa', 'acme', 'laptop of ada', '30 days', null, null, null, null, null, null),
  ('k5510ccd', 'acme', 'old importer', '300 days', '60 days', null, '31 days', null, null, null),
  ('k0e77b12', 'globex', 'search', '150 days', '2 min', null, null, 1200, null, null),
  ('kaa09e41', 'initech', 'trial', '60 days', '40 days', '-30 days', null, null, null, null)
) k (id, account, name, age, used, ends, gone, requests, tokens, pins)"""
_USAGE = """
insert into key_usage (key_id, minute, requests, tokens) values
  ('k7f3a9c2', date_trunc('minute', now()), 212, 188400), ('k0e77b12', date_trunc('minute', now()), 31, 9020)"""
_SCHED = """
insert into sched (pool_id, tenant_id, vtime, ready, inflight_tokens, served_tokens)
select p.pool_id, t.tenant_id, s.vtime, s.ready, s.inflight, s.served
from (values ('qwen3-32b', 'acme', 81200000, 412, 310000::bigint, 162400000::bigint), ('qwen3-32b', 'globex', 81450000, 96, 180000, 81450000),
  ('qwen3-32b', 'initech', 81190000, 20, 61000, 81190000), ('qwen3-32b', 'umbrella', 81600000, 5, 99000, 40800000),
  ('llama-3.3-70b', 'acme', 1200000, 30, 0, 2400000), ('llama-3.3-70b', 'globex', 900000, 0, 0, 900000)) s (model, account, vtime, ready, inflight, served)
join pool p on p.model = s.model join tenant t on t.account_id = s.account"""


_USED = """
with lines as (insert into line (tenant_id, key_id, workflow, task, critical, variant, family, model, kind, endpoint)
  select tenant_id, '', '-', '-', false, '-', '-', 'qwen3-32b', 'batch', '/v1/chat/completions' from tenant
  where account_id = any('{acme,globex,initech,umbrella}') returning line_id, tenant_id)
insert into usage (hour, line_id, requests, ok, prompt, output)
select date_trunc('hour', now()), line_id, 1000, 1000, s.tokens * 3 / 4, s.tokens / 4 from lines join tenant using (tenant_id)
join (values ('acme', 21300000), ('globex', 6100000), ('initech', 10700000), ('umbrella', 5200000)) s (account, tokens)
  on s.account = account_id"""
_REST = (_HOOKS, _EVENTS, _DELIVERIES, _ATTEMPTS, _KEYS, _USAGE, _SCHED, _USED)


async def fill(conn: Connection, *, samples: int = 8640) -> None:
    """Write the installation. `samples`: of each engine, ten seconds apart."""
    values = {"accounts": list(ACCOUNTS), "samples": samples}
    for statement in (_TENANTS, _POOLS, _WORKERS, _ENGINES, _SAMPLES, _DECISIONS, _CHANGES, *_REST):
        await conn.execute(statement.encode(), values if "%(" in statement else None)
