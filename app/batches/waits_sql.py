"""The SQL by which a steward that rests learns whether something waits for it, in whatever part of the product."""

from app.states import EndpointState, TenantState, TurnState
from app.webhooks import delivery_sql
from app.worker_lease import WORKER_LEASE_LAPSED

# Whether a round, or what is done beside the rounds, would find anything. With the server's times for the watch over workers.
WAITS = f"""
select exists (select from chunk) or exists (select from batch where finalized_at is null)
    or exists (select from batch where feeds and finalized_at is not null)
    or exists (select from batch_delta) or exists (select from sched_delta) or exists (select from handoff where due <= now())
    or exists (select from pipeline where finalized_at is null) or exists (select from audit_pending)
    or exists (select from worker where {WORKER_LEASE_LAPSED}) or exists (select from budget where window_to <= now())
    or exists (select from turn where state in ('{TurnState.QUEUED}', '{TurnState.RUNNING}'))
    or exists (select from endpoint where state = '{EndpointState.CLOSING}')
    or exists (select from tenant where state = '{TenantState.CLOSING}')
    or {delivery_sql.WAITS},
  extract(epoch from now())::float8, extract(epoch from pg_postmaster_start_time())::float8"""
