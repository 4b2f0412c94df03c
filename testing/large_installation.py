"""An installation with 10,000 batches, one of them of a million items, as rows: for the plans and the times of the console."""

from dataclasses import dataclass

ACCOUNT = "account-1"  # of the large batch
ITEMS_PER_CHUNK = 64


@dataclass(frozen=True)
class LargeInstallation:
    """Its sizes. Of the large batch, `answered` items have a result; if all had, `failed` of those would be failures. One of the
    other batches in a hundred is open.
    """

    batches: int = 10_000
    items: int = 1_000_000
    answered: int = 1_000_000
    failed: int = 37

    @property
    def _every(self) -> int:
        """Of so many items one has failed."""
        return self.items // self.failed

    @property
    def failures(self) -> int:
        """The items of the large batch that have failed."""
        return len(range(5, self.answered, self._every))

    @property
    def large_batch(self) -> str:
        """SQL of the id of the large batch."""
        return f"(select next_batch_id() >> 36 << 36) + {self.batches + 1}"

    def sql(self) -> str:
        """The statements that fill an empty database with today's partitions. They are one transaction."""
        return f"{ACCOUNTS}; {self._batches()}; {self._large()}; {_PHASES}"

    def _batches(self) -> str:
        return f"""
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, ok, failed, deadline, state, finalized_at, created_at,
                   name, tags, meta)
  select (select next_batch_id() >> 36 << 36) + g, ('00000000-0000-0000-0000-' || lpad(g::text, 12, '0'))::uuid, 1 + g % 25,
         'toy', '/v1', 100, 60, (g % 10 = 0)::int, now(), case when g % 100 = 0 then 'open' else 'completed' end,
         case when g % 100 <> 0 then now() end, now() - make_interval(secs => {self.batches} - g), 'name-' || g,
         case when g % 50 = 0 then '{{nightly}}'::text[] else '{{}}' end, jsonb_build_object('team', g % 40)
  from generate_series(1, {self.batches}) g"""

    def _large(self) -> str:
        failed = f"g % {self._every} = 5"
        return f"""
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, ok, failed, deadline)
  select {self.large_batch}, 'ffffffff-0000-0000-0000-000000000000', 1, 'toy', '/v1', {self.items},
         {self.answered - self.failures}, {self.failures}, now();
insert into item_payload (batch_id, seq, est_tokens, wants_json, body)
  select {self.large_batch}, g, 100, false, '{{}}' from generate_series(0, {self.items - 1}) g;
insert into item_result (batch_id, seq, run, ok, attempt, error, body)
  select {self.large_batch}, g, 1, case when {failed} then 0 else 1 end, 1,
         case when {failed} then 'invalid' end, '{{}}' from generate_series(0, {self.answered - 1}) g;
insert into batch_error (batch_id, run, error, tenant_id, n) select {self.large_batch}, 1, 'invalid', 1, {self.failures}"""

    def chunks(self) -> str:
        """The statements that queue the items without a result, of the large batch and of the other open ones."""
        return f"""
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
  select {self.large_batch}, 1, 1, 1, lo, hi, hi - lo + 1, 100 * (hi - lo + 1), now()
  from generate_series({self.answered}, {self.items - 1}, {ITEMS_PER_CHUNK}) lo,
       lateral (select least(lo + {ITEMS_PER_CHUNK}, {self.items}) - 1 as hi) h;
insert into chunk (batch_id, run, tenant_id, pool_id, lo, hi, n, est_tokens, deadline)
  select batch_id, 1, tenant_id, 1, ok + failed, total - 1, total - ok - failed, 100 * (total - ok - failed), deadline
  from batch where finalized_at is null and total = 100;
insert into sched (pool_id, tenant_id, ready) select 1, tenant_id, count(*) from chunk group by tenant_id"""


ACCOUNTS = """
insert into pool (model) values ('toy');
insert into tenant (account_id, name) select 'account-' || g, g from generate_series(1, 25) g"""
_PHASES = """
insert into batch_phase (batch_id, tenant_id, code)
  select batch_id, tenant_id, 'fair_share' from batch where finalized_at is null"""
