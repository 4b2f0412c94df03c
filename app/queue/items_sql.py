"""The SQL that lists the items of a batch with the facts of their results, without bodies but those of errors."""

from app.states import CHUNK

# An answer of any run counts, an error only in the present one, as in the results.
_FACTS = """r.ok, r.error, r.run, r.attempt, r.yields, r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.finished_at,
  r.engine_id, r.queued_ms, r.first_token_ms, r.ran_ms, case when r.ok = 0 and not r.stored then r.body end as body"""
_ROW = f"p.seq, p.reference, p.model, p.est_tokens, {_FACTS.replace('r.engine_id', 'e.name')}"
_ENGINE = "left join engine e on e.engine_id = r.engine_id"

# Which items of its chunks are in its engine only the worker knows.
LISTED = f"""
with leased as materialized (
  select lo, hi, seqs from chunk where batch_id = %(batch_id)s and {CHUNK.guard("finish")})
select exists (select from leased l where case when l.seqs is null then p.seq between l.lo and l.hi
    else p.seq = any(l.seqs) end) and r.ok is null,
  {_ROW.replace("case when r.ok = 0 and not r.stored then r.body end as body", "r.body")}
from item_payload p
left join lateral (
  select {_FACTS} from item_result r where r.batch_id = %(batch_id)s and r.seq = p.seq and (r.ok = 1 or r.run = %(run)s)
  order by r.ok desc, r.run desc limit 1) r on true
{_ENGINE}
where p.batch_id = %(batch_id)s and p.seq >= %(after)s order by p.seq limit %(limit)s"""

ONE = LISTED.replace("p.seq >= %(after)s order by p.seq limit %(limit)s", "p.seq = %(seq)s")


def _failed(of_class: str) -> str:
    return f"""
select false, {_ROW.replace("case when r.ok = 0 and not r.stored then r.body end as body", "r.body")}
from (select r.seq, {_FACTS} from item_result r
      where r.batch_id = %(batch_id)s and r.ok = 0 and r.seq >= %(after)s {of_class}
        and r.run = %(run)s order by r.seq limit %(limit)s) r
join item_payload p on p.batch_id = %(batch_id)s and p.seq = r.seq
{_ENGINE} order by r.seq"""


FAILED = _failed("")
FAILED_WITH = _failed("and r.error = %(error)s")
