"""The SQL that reads a batch: its status with live counts, and its results page by page."""

from app.db.byte_pages import bounded
from app.queue.item_counts_sql import (
    CLAIMED,
    FAILED,
    IN_ENGINE,
    JOINS,
    LIVE_DETAILS,
    LIVE_TOKENS,
    RETURNS_AT,
    SUCCEEDED,
)
from app.states import CHUNK


def _status(source: str = "batch b", first_columns: str = "") -> str:
    return f"""
select {first_columns}b.batch_id, b.request_id, b.model, b.state, b.run, b.total, b.created_at, b.finalized_at,
       {SUCCEEDED}, {FAILED}, {LIVE_TOKENS}, coalesce(c.started, false), b.deadline, b.expires_at,
       b.opened_at, b.endpoint, b.tags, b.meta, b.policy, b.diverted_to, b.name, b.traceparent, b.shredded_at,
       (select i.request_id from batch i where i.batch_id = b.pipeline_id), b.fed,
       {CLAIMED}, {IN_ENGINE}, {RETURNS_AT}, {LIVE_DETAILS}
from {source}
{JOINS}
"""


# Its items that a worker has and that have no limit of their answers: of as many as are looked at. A body that is sealed, or in
# the object store, is not read. In a text within JSON the quotes of such a name would have backslashes.
_MOST_LOOKED_AT = 1000
_LIMITS = ('"max_tokens"', '"max_completion_tokens"', '"max_output_tokens"')
UNLIMITED = f"""
select count(*)::int from batch b cross join lateral (
  select x.seq from chunk c
  cross join lateral unnest(coalesce(c.seqs, array(select generate_series(c.lo, c.hi)))) x (seq)
  where c.batch_id = b.batch_id and {CHUNK.guard("finish", "c.")} limit {_MOST_LOOKED_AT}) i
cross join lateral (select * from item_payload where batch_id = b.batch_id and seq = i.seq limit 1) p
where b.batch_id = %(batch_id)s and b.open_ended and not p.stored
  and not exists (select from batch_key k where k.batch_id = b.batch_id and not k.only_vaults)
  and not exists (select from item_result r where r.batch_id = b.batch_id and r.seq = i.seq and r.run = b.run)
  and {" and ".join(f"position('{name}'::bytea in p.body) = 0" for name in _LIMITS)}"""
_REQUESTED = """unnest(%(tenant_ids)s::bigint[], %(request_ids)s::uuid[]) as requested (tenant_id, request_id)
join batch b on b.request_id = requested.request_id and b.tenant_id = requested.tenant_id"""
STATUS = f"{_status()} where b.tenant_id = %(tenant_id)s and b.request_id = %(request_id)s"
STATUSES = _status(_REQUESTED, "requested.tenant_id, ")


# The prompts of answers of these runs that belong to sessions, in the order of their ends. The session of a single request is
# that of its submit, unless it names one itself.
SESSION_PROMPTS = """
select b.tenant_id, coalesce(p.affinity, b.affinity), b.line_id, coalesce(p.model, b.model), r.prompt_tokens, r.cached_tokens
from unnest(%(batch_ids)s::int8[], %(runs)s::int2[]) x (batch_id, run) join batch b using (batch_id)
join item_payload p on p.batch_id = b.batch_id join item_result r on r.batch_id = p.batch_id and r.seq = p.seq and r.run = x.run
where r.ok = 1 and (p.affinity is not null or (b.total = 1 and b.affinity is not null)) and b.line_id is not null
order by r.finished_at, p.batch_id, p.seq"""


def _results(more_columns: str = "", more_size: str = "") -> str:
    rows = f"""
select p.seq, p.reference, p.wants_json, coalesce(r.ok = 1, false), r.body,
       r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.yields, coalesce(r.stored, false), p.model, r.run, p.vault
       {more_columns}
from item_payload p left join lateral (
  select ok, run, body, stored, prompt_tokens, cached_tokens, completion_tokens, yields from item_result r
  where r.batch_id = %(batch_id)s and r.seq = p.seq and (ok = 1 or run = %(run)s) order by ok desc, run desc limit 1) r on true
where p.batch_id = %(batch_id)s and p.seq >= %(after)s order by p.seq limit %(limit)s"""
    return bounded(rows, f"coalesce(octet_length(body), 0) + coalesce(octet_length(vault), 0){more_size}")


# Read by `app.db.byte_pages`.
RESULTS = _results()
RESULTS_AND_ITEMS = _results(", p.body as item, p.stored as item_stored", " + octet_length(item)")
