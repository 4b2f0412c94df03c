"""The SQL of parked items: they begin to wait, are answered, time out, or are dropped."""

from app.states import PARKED, BatchState, ParkedState

_WAITS = f"state = '{ParkedState.WAITING}'"  # as the indexes have it

# An item of an earlier run that was not answered waits anew.
FORGET = "delete from parked where batch_id = %(batch_id)s and seq = any(%(seqs)s) and run < %(run)s"
PARK = """
insert into parked (batch_id, seq, run, due)
select %(batch_id)s, x.seq, %(run)s, now() + make_interval(secs => %(seconds)s) from unnest(%(seqs)s::int[]) x (seq)"""

ANSWER = f"""
update parked set state = '{PARKED.target("answer")}'
where batch_id = %(batch_id)s and seq = %(seq)s and {PARKED.guard("answer")} returning run"""
# With its answer, if it has one.
STATE = """
select k.state, k.run, p.vault, r.body from parked k
join item_payload p on p.batch_id = k.batch_id and p.seq = k.seq
left join item_result r on r.batch_id = k.batch_id and r.seq = k.seq and r.run = k.run
where k.batch_id = %(batch_id)s and k.seq = %(seq)s"""

TIME_OUT = f"""
with due as (select batch_id, seq from parked where {PARKED.guard("time out")} and due <= now()
       order by due limit %(limit)s for update skip locked)
update parked k set state = '{PARKED.target("time out")}' from due where (k.batch_id, k.seq) = (due.batch_id, due.seq)
returning k.batch_id, k.run, k.seq, (select s.name from stage s where s.batch_id = k.batch_id)"""

# A batch that is cancelling or expiring ends when none of its items waits any more (`settling_sql.FINALISE`).
DROP = f"""
update parked k set state = '{PARKED.target("drop")}' from batch b
where b.state in ('{BatchState.CANCELLING}', '{BatchState.EXPIRING}') and k.batch_id = b.batch_id
  and {PARKED.guard("drop", "k.")}"""

# The batch of a stage. Without such a pipeline there is no row; without such a stage the batch is null.
FIND = """
select p.pipeline_id, s.batch_id from pipeline p left join stage s on s.pipeline_id = p.pipeline_id and s.name = %(stage)s
where p.tenant_id = %(tenant_id)s and p.request_id = %(request_id)s"""

# The batches of a pipeline have their items in the tables of one day.
WAITING = f"""
select s.name, s.batch_id, k.seq, p.reference, p.body, k.due
from stage s join parked k on k.batch_id = s.batch_id and k.{_WAITS}
join item_payload p on p.batch_id = k.batch_id and p.seq = k.seq
where s.pipeline_id = %(pipeline_id)s and (%(batch_id)s::bigint is null or s.batch_id = %(batch_id)s)
  and (s.batch_id, k.seq) > (%(after_batch)s::bigint, %(after_seq)s::int)
order by s.batch_id, k.seq limit %(limit)s"""

GAUGE = f"select count(*)::int from (select from parked where {_WAITS} limit %(most)s) k"
