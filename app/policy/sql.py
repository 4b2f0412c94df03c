"""The SQL of the policy's versions and of the samples."""

NEWEST_ID = "select max(policy_id) from policy"
_COLUMNS = "policy_id, hash, text, by, at, restores"
FIND = f"select {_COLUMNS} from policy where policy_id = %(policy_id)s"
NEWEST = f"""
select {_COLUMNS} from policy where %(before)s::int8 is null or policy_id < %(before)s
order by policy_id desc limit %(limit)s"""
# The version before the one whose text is in force: a version that restores an earlier one stands where that one stands.
BEFORE = f"""
with recursive place as (
  (select policy_id, restores from policy order by policy_id desc limit 1)
  union all select p.policy_id, p.restores from place join policy p on p.policy_id = place.restores)
select {_COLUMNS} from policy where policy_id < (select min(policy_id) from place) order by policy_id desc limit 1"""
# Held until the transaction ends, so that of two appliers the second compares with what the first has written.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater policy'))"
ADD = f"""
insert into policy (hash, text, by, restores) values (%(hash)s, %(text)s, %(by)s, %(restores)s) returning {_COLUMNS}"""

SAMPLE = """
insert into request_sample (tenant_id, key_id, workflow, task, critical, kind, model, endpoint, deadline, requests, est_tokens,
                            answer_tokens)
select x.* from unnest(%(tenant_id)s::int[], %(key_id)s::text[], %(workflow)s::text[], %(task)s::text[], %(critical)s::bool[],
                       %(kind)s::text[], %(model)s::text[], %(endpoint)s::text[], %(deadline)s::float8[], %(requests)s::int[],
                       %(est_tokens)s::int8[], %(answer_tokens)s::int8[])
  x (tenant_id, key_id, workflow, task, critical, kind, model, endpoint, deadline, requests, est_tokens, answer_tokens)
where exists (select from tenant t where t.tenant_id = x.tenant_id)"""
SAMPLES = """
select t.account_id, s.key_id, s.workflow, s.task, s.critical, s.kind, s.model, s.endpoint, s.deadline, s.requests, s.est_tokens,
       s.answer_tokens
from request_sample s join tenant t using (tenant_id)
where s.at >= %(since)s and (%(tenant_id)s::int is null or s.tenant_id = %(tenant_id)s)
order by s.sample_id"""
FORGET_SAMPLES = "delete from request_sample where at < now() - make_interval(days => %(days)s)"

# Batches that are not final, each as one row: what was asked for it, and its unfinished items with their mean estimate.
OPEN_BATCHES = """
select t.account_id, l.key_id, l.workflow, l.task, l.critical, b.kind, coalesce(b.policy->>'asked', b.model), b.endpoint,
       extract(epoch from b.expires_at - b.opened_at)::float8, sum(c.n)::int, (sum(c.est_tokens) / sum(c.n))::int8, 0::int8
from batch b join tenant t using (tenant_id) join line l using (line_id) join chunk c using (batch_id)
where b.finalized_at is null and (%(tenant_id)s::int is null or b.tenant_id = %(tenant_id)s)
group by b.batch_id, t.account_id, l.line_id"""
