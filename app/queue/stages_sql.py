"""The SQL of the batches of a pipeline: they are made without items, and get them from the results of their parent."""

from app.queue.batch_state_sql import REOPENED
from app.states import BATCH, PIPELINE, BatchState

ADD = """
insert into batch (batch_id, request_id, tenant_id, model, endpoint, total, state, deadline, expires_at, finalized_at, kind,
                   open_ended, line_id, policy, tags, meta, name, correlation_id, traceparent, bytes, pipeline_id, parent_id,
                   feeds, fed)
values (%(batch_id)s, %(request_id)s, %(tenant_id)s, %(model)s, %(endpoint)s, %(total)s, %(state)s,
        now() + make_interval(secs => %(deadline_seconds)s),
        case when %(expires)s then now() + make_interval(secs => %(deadline_seconds)s) end,
        case when %(final)s then now() end, %(kind)s, true, %(line_id)s, %(policy)s, %(tags)s, %(meta)s, %(name)s,
        %(correlation_id)s, %(traceparent)s, %(bytes)s, %(pipeline_id)s, %(parent_id)s, %(feeds)s, %(fed)s)"""

# A batch that runs itself becomes the input of a pipeline.
ADOPT = """
update batch set pipeline_id = batch_id, feeds = true, kind = %(kind)s where batch_id = %(batch_id)s
returning total, run"""

# Stages of these pipelines that have not begun because others, which have ended now, were not final.
AWAKE = f"""
with running as materialized (select pipeline_id from pipeline
       where pipeline_id = any(%(pipeline_ids)s) and state = '{BatchState.OPEN}' for share),
 awake as (update stage s set waits_for = null
       from running r
       where s.waits_for is not null and s.pipeline_id = r.pipeline_id
         and not exists (select from stage w join batch b using (batch_id)
                         where w.pipeline_id = s.pipeline_id and w.n = any(s.waits_for) and b.finalized_at is null)
       returning s.batch_id)
update batch b set state = '{BatchState.OPEN}' from awake a
where b.batch_id = a.batch_id and {BATCH.guard("resume", "b.")} returning b.batch_id"""

# All batches of a pipeline follow a verb on it. Those that wait for others are not resumed.


def follow(verb: str) -> str:
    """The UPDATE that moves the batches of a pipeline by `verb`: pause, resume, cancel or expire."""
    waits = "and s.waits_for is null" if verb == "resume" else ""
    return f"""
with mine as materialized (select b.batch_id from stage s join batch b using (batch_id)
       where s.pipeline_id = %(pipeline_id)s and {BATCH.guard(verb, "b.")} {waits} order by b.batch_id for update of b)
update batch b set state = '{BATCH.target(verb)}' from mine where b.batch_id = mine.batch_id returning b.batch_id"""


# The pipelines of an account that is being deleted.
CANCEL_ALL = f"""
update pipeline set state = '{PIPELINE.target("cancel")}', paused_for = null
where tenant_id = %(tenant_id)s and {PIPELINE.guard("cancel")} returning pipeline_id"""

# ---------------------------------------------------------------- a new run

# Items of a batch that may run again: requests without an answer from which nothing was made, and whose error is not still to be
# handed on. Each child: its batch, and which numbers come from an item: `times` of them, from seq * `times` / `part` on.
AGAIN = """
select p.seq, p.est_tokens, p.model, p.line_id from item_payload p
where p.batch_id = %(batch_id)s
  and (p.est_tokens > 0 or exists (select from parked k where k.batch_id = %(batch_id)s and k.seq = p.seq))
  and not exists (select from item_result r where r.batch_id = %(batch_id)s and r.seq = p.seq and r.ok = 1)
  and not exists (
    select from unnest(%(children)s::int8[], %(times)s::int8[], %(parts)s::int8[]) as c (batch_id, times, part)
    join item_payload k on k.batch_id = c.batch_id
      and k.seq >= p.seq * c.times / c.part and k.seq < p.seq * c.times / c.part + c.times)
  and not exists (select from handoff h where h.batch_id = %(batch_id)s and h.run > 0 and p.seq = any(h.seqs))
order by p.seq"""

# Errors of items that do not run again stay in the new run.
KEEP_ERRORS = """
insert into item_result (batch_id, seq, run, ok, attempt, prompt_tokens, cached_tokens, completion_tokens, finished_at, body,
                         stored, error, engine_id)
select batch_id, seq, run + 1, ok, attempt, prompt_tokens, cached_tokens, completion_tokens, finished_at, body, stored, error,
       engine_id
from item_result r
where batch_id = %(batch_id)s and run = %(run)s and ok = 0 and seq <> all(%(again)s::int4[])
  and not exists (select from item_result o where o.batch_id = %(batch_id)s and o.seq = r.seq and o.ok = 1)"""

REOPEN = f"""
with noted as (insert into removed_counts as r (tenant_id, failed)
       select tenant_id, failed - %(failed)s from batch where batch_id = %(batch_id)s and failed > %(failed)s
       on conflict (tenant_id) do update set failed = r.failed + excluded.failed)
update batch b set state = %(state)s, run = %(run)s, failed = %(failed)s, finalized_at = null, feeds = %(feeds)s, fed = %(fed)s,
       opened_at = now(), deadline = now() + (deadline - opened_at), expires_at = now() + (expires_at - opened_at)
where batch_id = %(batch_id)s
returning {REOPENED}"""
FEED_AGAIN = "update batch set feeds = true where batch_id = %(batch_id)s"
FEED_NO_MORE = """
update batch set feeds = false
where feeds and batch_id in (select s.batch_id from stage s where s.pipeline_id = any(%(pipeline_ids)s))"""
