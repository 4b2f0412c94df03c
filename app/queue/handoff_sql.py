"""The SQL of the hand-off: markers of results that are to be handed on, packs that wait for inputs, the end of feeding.

A flush of a batch that feeds leaves a marker (`worker_sql.FLUSH_FEEDING`). The steward makes the children of its results, in the
transaction that deletes the marker. A marker of run 0 names packs that have all their inputs.
"""

from app.states import BATCH

PACKS = 0  # the run of a marker of packs
MOST_TRIES = 5

ADD = """
insert into handoff (batch_id, run, seqs, bytes, input)
values (%(batch_id)s, %(run)s, %(seqs)s, %(bytes)s, %(input)s)"""

# Those of `input` come last: items that have begun finish first, while their prefixes are cached. An index has both orders.
LOOK = """
select handoff_id, batch_id, run, seqs, bytes, tries from handoff
where due < 'infinity' and due <= now() order by input, handoff_id limit %(limit)s"""

_THESE = "(batch_id, handoff_id) in (select * from unnest(%(batch_ids)s::bigint[], %(ids)s::bigint[]))"

# Whoever deletes a marker hands it on. Another feeder, which read it too, finds fewer than it has read, and begins again.
TAKE = f"delete from handoff where {_THESE} returning handoff_id"

# Two feeders, one of which has lost the lead without noticing yet, would lock packs and pools in different orders.
ONE_AT_A_TIME = "select pg_advisory_xact_lock(hashtext('slackwater feed'))"

REST = f"update handoff set due = 'infinity' where {_THESE}"
FAILED = f"""
update handoff set tries = tries + 1,
  due = case when tries + 1 < {MOST_TRIES} then now() + make_interval(secs => power(2, tries)) else 'infinity' end
where {_THESE} returning tries"""

# What they need cannot be had now, which is no failure of theirs.
POSTPONE = f"""
update handoff set due = now() + make_interval(secs => %(seconds)s)
where {_THESE} and due < 'infinity'"""

# Those that were set aside get as many tries as new ones: whoever resumes has looked at why they failed.
RESUME = """
update handoff set due = now(), tries = 0 where due = 'infinity' and batch_id = any(%(batch_ids)s)"""
SET_ASIDE = f"due = 'infinity' and tries >= {MOST_TRIES}"

# How many inputs packs wait for: those that are known, and what becomes of them. Only the feeder reads and writes them.
OPEN = """
select g.batch_id, g.seq, g.open
from unnest(%(batch_ids)s::bigint[], %(seqs)s::int[]) x (batch_id, seq) join gather g using (batch_id, seq)"""
COUNT = """
insert into gather as g (batch_id, seq, open)
select * from unnest(%(batch_ids)s::bigint[], %(seqs)s::int[], %(open)s::int[])
on conflict (batch_id, seq) do update set open = excluded.open"""

# ---------------------------------------------------------------- the end of feeding

# Everything that the parent of a batch has was handed on.
_ALL_GIVEN = """c.parent_id = p.batch_id and c.fed and p.feeds and p.finalized_at is not null
  and not exists (select from handoff h where h.batch_id = p.batch_id)
  and not exists (select from handoff h where h.batch_id = c.batch_id)"""

CLOSE = f"""
with ready as (select c.batch_id, c.parent_id from batch p join batch c on {_ALL_GIVEN}
       and not exists (select from stage s where s.batch_id = c.batch_id and s.packs < 0)),
 closed as (update batch c set fed = false from ready r where c.batch_id = r.batch_id and c.fed
       returning c.batch_id, c.parent_id),
 ended as (update batch p set feeds = false
       where p.feeds and p.batch_id in (select parent_id from closed)
         and not exists (select from batch c where c.parent_id = p.batch_id and c.fed
                           and c.batch_id not in (select batch_id from closed)))
select batch_id from closed"""

# Stages that pack by value and whose parent is final, so that their packs are known.
RIPE = f"""
select c.batch_id from batch p join batch c on {_ALL_GIVEN}
where exists (select from stage s where s.batch_id = c.batch_id and s.packs < 0)
  and c.finalized_at is null and {BATCH.guard("pause", "c.")}"""
