"""SQL on all contents of an account."""

from app.states import BATCH, EndpointState

# The counts of each account use indexes that begin with the tenant.
ACCOUNTS = f"""
select t.tenant_id, t.account_id, t.state, t.created_at, t.weight, t.max_inflight_tokens, t.retention_days, t.webhook_hosts,
       (select count(*) from api_key k where k.tenant_id = t.tenant_id and k.revoked_at is null
          and (k.expires_at is null or k.expires_at > now())),
       (select count(*) from endpoint e where e.tenant_id = t.tenant_id and e.state <> '{EndpointState.CLOSING}'),
       (select count(*) from file f where f.tenant_id = t.tenant_id and f.state = 'ready'
          and (f.expires_at is null or f.expires_at > now())),
       b.batches, b.open_batches
from tenant t cross join lateral (
  select count(*) as batches, count(*) filter (where finalized_at is null) as open_batches
  from batch where batch.tenant_id = t.tenant_id) b
where %(account_id)s::text is null or t.account_id = %(account_id)s order by t.account_id"""

OPEN = f"""
select request_id from batch where tenant_id = %(tenant_id)s and {BATCH.guard("cancel")} and pipeline_id is null
order by batch_id limit %(limit)s"""
HAS_BATCHES = "select exists (select from batch where tenant_id = %(tenant_id)s)"
