"""The SQL of conversations and stored responses. `app.states.TURN` has the transitions."""

from app.db.byte_pages import bounded
from app.db.durability import RELAXED
from app.states import BATCH, TURN, TurnState

ADD_SESSION = """
insert into session (session_id, tenant_id, meta, key_id) values (%(session_id)s, %(tenant_id)s, %(meta)s, %(key_id)s)"""

_IS_LATE = "s.lease_until < now()"
_TURN = "turn_id, n, state, batch_id, model, input, output, vault, key_id, prompt_tokens, session_id, parent_turn"
# A turn in the clear that comes after a sealed one.
_FORGED = """(key_id is null and exists (select from turn e where e.key_id is not null
  and (e.session_id = turn.session_id and e.n < turn.n or e.turn_id = turn.parent_turn)))"""
VERSION = "select version from session where session_id = %(session_id)s and tenant_id = %(tenant_id)s"

# The bytes that the turns of a conversation take. No body is read for it, also where it is stored apart.
BODIES = ("input", "original", "output", "vault")
_BYTES = " + ".join(f"coalesce(octet_length({name}), 0)" for name in BODIES)
# Of a session s. The turns for which its summary stands were added up when it was taken, and change only without it.
_AFTER = "case when s.summary is null then 0 else s.base end"
_HELD = f"""select coalesce(sum({_BYTES}), 0) + case when s.summary is null then 0 else s.folded end as held
  from turn where session_id = s.session_id and n > {_AFTER}"""

_SESSION = f"""
select s.version, s.turn_id is not null or exists (
         select from turn q where q.session_id = s.session_id and q.state = '{TurnState.QUEUED}'),
       coalesce({_IS_LATE}, false), s.summary, s.meta, s.key_id, s.created_at, s.slope, h.held, v.turn_id, v.vault, v.key_id,
       s.edits"""
_FROM = f"""
from session s
left join lateral ({_HELD}) h on true
left join lateral (select turn_id, vault, key_id from turn
  where session_id = s.session_id and vault is not null and state = '{TurnState.DONE}' order by n desc limit 1) v on true"""
# A conversation with its past, in one statement, because a caller waits for it: a row for each turn that has ended and that no
# summary replaces, or one row without a turn.
WITH_PAST = f"""
{_SESSION}, {", ".join(f"t.{name}" for name in _TURN.split(", "))} {_FROM}
left join turn t on t.session_id = s.session_id and t.state = '{TurnState.DONE}'
  and t.n > {_AFTER}
where s.session_id = %(session_id)s and s.tenant_id = %(tenant_id)s order by t.n"""
WITHOUT_PAST = f"{_SESSION} {_FROM} where s.session_id = %(session_id)s and s.tenant_id = %(tenant_id)s"
PAST = f"""
select {_TURN} from turn where session_id = %(session_id)s and state = '{TurnState.DONE}' order by n"""
PAST_WITH_VALUES = PAST.replace("order by", "and vault is not null order by")
PAGE = {
    ascending: bounded(
        f"""
select {_TURN}, null as request_hash, {_FORGED} as forged from turn
where session_id = %(session_id)s and tenant_id = %(tenant_id)s and state = '{TurnState.DONE}'
  and n {sign} coalesce(%(start)s::int, {end}) order by n {order} limit %(limit)s""",
        "coalesce(octet_length(input), 0) + coalesce(octet_length(output), 0) + coalesce(octet_length(vault), 0)",
        order="n",
        descending=not ascending,
    )
    for ascending, sign, end, order in ((True, ">=", 0, "asc"), (False, "<=", 2**31 - 1, "desc"))
}
TURN_OF = f"""
select {_TURN}, null, {_FORGED} from turn where turn_id = %(turn_id)s and tenant_id = %(tenant_id)s"""
KEYED = f"""
select {_TURN}, request_hash, false from turn where session_id = %(session_id)s and idempotency_key = %(key)s"""

# A response and those that it continues, the first one first.
CHAIN = f"""
with recursive chain as (
  select * from turn where turn_id = %(turn_id)s and tenant_id = %(tenant_id)s
  union all select t.* from turn t join chain c on t.turn_id = c.parent_turn where t.tenant_id = %(tenant_id)s)
select {_TURN} from chain order by n"""

BELOW = f"""
with recursive below as (
  select turn_id from turn where parent_turn = any(%(turn_ids)s) and tenant_id = %(tenant_id)s
  union all select t.turn_id from turn t join below b on t.parent_turn = b.turn_id where t.tenant_id = %(tenant_id)s)
select {_TURN} from turn where turn_id in (select turn_id from below) and vault is not null"""
TURN_IDS = """
select turn_id from turn where session_id = %(session_id)s and n >= %(n)s and vault is not null"""

# Of a turn without an answer nothing is kept.
_EMPTIED = "idempotency_key = null, input = '[]', original = null, vault = null"
# A turn whose process is gone ends here; so does the wait of those after it.
LAPSE = f"""
with s as (update session s set version = t.n, turn_id = null, lease_until = null
    from turn t where s.session_id = %(session_id)s and t.turn_id = s.turn_id and {_IS_LATE} returning t.turn_id)
update turn t set state = '{TURN.target("fail")}', finished_at = now(), {_EMPTIED}
from s where t.turn_id = s.turn_id and {TURN.guard("fail", "t.")}"""

LOCK = "select version, turn_id, edits from session where session_id = %(session_id)s for no key update"
_NEXT = "(select coalesce(max(n), 0) + 1 from turn where session_id = %(session_id)s)"
_INSERT = """insert into turn (turn_id, tenant_id, session_id, n, parent_turn, state, batch_id, model, spender, input, original,
  output, vault, key_id, prompt_tokens, cached_tokens, completion_tokens, idempotency_key, request_hash, finished_at)"""
_VALUES = """%(parent_turn)s::uuid, %(state)s::text, %(batch_id)s::int8, %(model)s::text, %(spender)s::jsonb, %(input)s::bytea,
  %(original)s::bytea, %(output)s::bytea, %(vault)s::bytea, %(key_id)s::uuid, %(prompt_tokens)s::int, %(cached_tokens)s::int,
  %(completion_tokens)s::int, %(key)s::text, %(request_hash)s::bytea, case when %(state)s::text = 'done' then now() end"""

# Two that begin at once: the row is locked, and the second finds another version, or a turn with its number.
BEGIN = f"""
with s as (update session set turn_id = %(turn_id)s, lease_until = now() + %(lease)s, key_id = coalesce(%(key_id)s, key_id)
    where session_id = %(session_id)s and version = %(version)s and edits = %(edits)s and turn_id is null
      and not exists (select from turn q where q.session_id = %(session_id)s and q.state = '{TurnState.QUEUED}') and {RELAXED}
    returning session_id, tenant_id)
{_INSERT} select %(turn_id)s, tenant_id, session_id, {_NEXT}, {_VALUES} from s returning n"""
# Items without a response: the turn begins and ends at once.
APPEND = f"""
with s as (update session set version = {_NEXT}, used_at = now(), key_id = coalesce(%(key_id)s, key_id)
    where session_id = %(session_id)s and version = %(version)s and edits = %(edits)s and turn_id is null
      and not exists (select from turn q where q.session_id = %(session_id)s and q.state = '{TurnState.QUEUED}')
    returning session_id, tenant_id, version)
{_INSERT} select %(turn_id)s, tenant_id, session_id, version, {_VALUES} from s returning n"""
# A background turn, after LOCK: it runs at once, or waits. The second column: what the turns before it take.
QUEUE = f"""
{_INSERT} select %(turn_id)s, %(tenant_id)s, %(session_id)s, {_NEXT}, {_VALUES}
returning n, (select h.held from session s cross join lateral ({_HELD}) h where s.session_id = %(session_id)s)"""
# What a response knows from the one that it continues is stored only while that one still says so. A deletion, which changes or
# removes its row, comes before or after.
_KNOWN = """
with known as (select from turn where turn_id = %(parent)s::uuid and vault is not distinct from %(known)s::bytea for share)"""
_IS_KNOWN = "(%(parent)s::uuid is null or exists (select from known))"
ADD = f"{_KNOWN} {_INSERT} select %(turn_id)s, %(tenant_id)s, null, %(n)s, {_VALUES} where {_IS_KNOWN} returning n"
TAKE = """
update session set turn_id = %(turn_id)s, lease_until = null, key_id = coalesce(%(key_id)s, key_id)
where session_id = %(session_id)s and turn_id is null and version = %(version)s and edits = %(edits)s returning version"""
START = f"""
update turn set state = '{TURN.target("begin")}', input = %(input)s, vault = %(vault)s
where turn_id = %(turn_id)s and {TURN.guard("begin")} returning n"""

RENEW = """
update session set lease_until = now() + %(lease)s from unnest(%(sessions)s::uuid[], %(turns)s::uuid[]) o (session_id, turn_id)
where session.session_id = o.session_id and session.turn_id = o.turn_id"""

PROMPTS = f"""
select prompt_tokens, completion_tokens from (
  select n, prompt_tokens, completion_tokens from turn
  where session_id = %(session_id)s and state = '{TurnState.DONE}' and model is not null order by n desc limit %(limit)s) p
order by n"""
ACCOUNT = "select account_id from tenant where tenant_id = %(tenant_id)s"


def _over(verb: str, changes: str) -> str:
    """The statement that ends the running turn of a session by `verb`: nothing happens unless it still runs."""
    return f"""
with s as (update session s set version = t.n, turn_id = null, lease_until = null, used_at = now(),
             slope = coalesce(%(slope)s, slope)
    from turn t where t.turn_id = %(turn_id)s and s.session_id = t.session_id and s.turn_id = t.turn_id
    returning t.turn_id)
update turn t set state = '{TURN.target(verb)}', finished_at = now(), {changes}
from s where t.turn_id = s.turn_id and {TURN.guard(verb, "t.")} returning t.n"""


_OUTPUT = """output = %(output)s, vault = %(vault)s, prompt_tokens = %(prompt_tokens)s,
  cached_tokens = %(cached_tokens)s, completion_tokens = %(completion_tokens)s"""
END = _over("end", _OUTPUT)
GIVE_UP = {verb: _over(verb, _EMPTIED) for verb in ("fail", "cancel")}
# The same for a turn of no conversation.
END_LOOSE = f"""{_KNOWN}
update turn set state = '{TURN.target("end")}', finished_at = now(), {_OUTPUT}
where turn_id = %(turn_id)s and session_id is null and {TURN.guard("end")} and {_IS_KNOWN} returning n"""
GIVE_UP_LOOSE = {
    verb: f"""
update turn set state = '{TURN.target(verb)}', finished_at = now(), {_EMPTIED}
where turn_id = %(turn_id)s and session_id is null and {TURN.guard(verb)} returning n"""
    for verb in ("fail", "cancel")
}
CANCEL_QUEUED = f"""
update turn set state = '{TURN.target("cancel")}', finished_at = now(), {_EMPTIED}
where turn_id = %(turn_id)s and state = '{TurnState.QUEUED}' returning n"""

# ---------------------------------------------------------------- the steward

_ENDED = """
select t.turn_id, t.tenant_id, a.account_id, t.state from turn t join batch b using (batch_id)
join tenant a on a.tenant_id = t.tenant_id
where t.state in ('queued', 'running') and b.finalized_at is not null"""
ENDED_BATCHES = f"{_ENDED} and t.turn_id <> all(%(stuck)s::uuid[]) order by t.batch_id limit %(limit)s"
IS_ENDING = """
select from turn t join batch b using (batch_id) where t.turn_id = %(turn_id)s and b.finalized_at is not null"""
ENDING_IN = f"""
select from turn t join batch b using (batch_id) where t.session_id = %(session_id)s
  and t.state in ('{TurnState.QUEUED}', '{TurnState.RUNNING}') and b.finalized_at is not null limit 1"""
ENDED_OF = f"{_ENDED} and t.turn_id = any(%(turn_ids)s)"
# The first turn that waits in each conversation, except where one is stuck.
NEXT_QUEUED = f"""
select distinct on (t.session_id) t.turn_id, t.session_id, t.tenant_id, a.account_id, t.batch_id
from turn t join session s using (session_id) join batch b using (batch_id) join tenant a on a.tenant_id = t.tenant_id
where t.state = '{TurnState.QUEUED}' and (s.turn_id is null or {_IS_LATE}) and b.finalized_at is null
  and not exists (select from turn k where k.turn_id = any(%(stuck)s::uuid[]) and k.session_id = t.session_id)
order by t.session_id, t.n limit %(limit)s"""

# A conversation whose last turns were answered lately, and that has many of them, or whose last prompt and answer are `full` for
# its model. `checkpoint_n` of one without a batch: when one was tried last.
CHECKPOINTS_DUE = """
select s.session_id, s.tenant_id, a.account_id, t.model, t.turn_id, t.spender
from session s join turn t on t.session_id = s.session_id and t.n = s.version join tenant a on a.tenant_id = s.tenant_id
join unnest(%(models)s::text[], %(full)s::int[]) m (name, tokens) on m.name = t.model
where s.used_at > now() - interval '10 minutes' and s.checkpoint_batch is null and a.state = 'active'
  and t.state = 'done' and t.prompt_tokens > %(least)s and s.version > coalesce(s.checkpoint_n, 0)
  and (s.version - greatest(s.base, s.checkpoint_n) >= %(turns)s or t.prompt_tokens + t.completion_tokens >= m.tokens)
order by s.used_at limit %(limit)s"""
CHECKPOINT_ASKED = """
update session set checkpoint_batch = %(batch_id)s, checkpoint_n = %(n)s
where session_id = %(session_id)s and version = %(version)s and checkpoint_batch is null returning version"""
CHECKPOINTS_MADE = """
select s.session_id, s.tenant_id, s.checkpoint_batch, b.request_id
from session s join batch b on b.batch_id = s.checkpoint_batch where b.finalized_at is not null limit %(limit)s"""
# Those without `checkpoint_n` are not wanted any more: the conversation has lost an item that they may tell of.
CHECKPOINTS_UNWANTED = f"""
select s.tenant_id, b.request_id from session s join batch b on b.batch_id = s.checkpoint_batch
where s.checkpoint_n is null and {BATCH.guard("cancel", "b.")} limit %(limit)s"""
CHECKPOINT_OF = """
select b.request_id from session s join batch b on b.batch_id = s.checkpoint_batch
where s.session_id = %(session_id)s and s.tenant_id = %(tenant_id)s and b.finalized_at is null"""
CHECKPOINT_TAKEN = f"""
update session s set summary = %(summary)s, base = checkpoint_n, checkpoint_batch = null, checkpoint_n = null,
  folded = (select coalesce(sum({_BYTES}), 0) from turn t where t.session_id = s.session_id and t.n <= s.checkpoint_n)
where session_id = %(session_id)s and checkpoint_batch = %(batch_id)s and checkpoint_n is not null returning base"""
# `batch_id`: of the checkpoint; null: none could be asked for. The next one is tried later, at once after an unwanted one.
CHECKPOINT_FAILED = """
update session set checkpoint_batch = null,
  checkpoint_n = case when checkpoint_batch is null or checkpoint_n is not null then version end
where session_id = %(session_id)s and checkpoint_batch is not distinct from %(batch_id)s::int8"""

# ---------------------------------------------------------------- the owner's changes

SET_META = """
update session set meta = %(meta)s where session_id = %(session_id)s and tenant_id = %(tenant_id)s returning version"""
LOCK_TO_FORGET = f"{VERSION} for update"
FORGET_SESSION = f"""
delete from session s where session_id = %(session_id)s and tenant_id = %(tenant_id)s
  and (turn_id is null or {_IS_LATE})
  and not exists (select from turn q where q.session_id = s.session_id and q.state = '{TurnState.QUEUED}')
  and not exists (select from batch b where b.batch_id = s.checkpoint_batch and b.finalized_at is null)
returning session_id"""
KEYS_OF_SESSION = """
select key_id from session where session_id = %(session_id)s and key_id is not null
union select key_id from turn where session_id = %(session_id)s and key_id is not null"""
BATCHES_OF_SESSION = """
select batch_id from turn where session_id = %(session_id)s and batch_id is not null
union all select checkpoint_batch from session where session_id = %(session_id)s and checkpoint_batch is not null"""
# Without its summary, which may tell what the item said, nor the one that is being made. Of two that change a turn at once, the
# second finds another turn than it has read, and changes nothing. `held`: what the conversation must still take, where vaults of
# other turns change, too; null: they do not.
REWRITE = f"""
with s as (update session s set base = 0, summary = null, checkpoint_n = null, edits = edits + 1
    where session_id = %(session_id)s and tenant_id = %(tenant_id)s and version = %(version)s and turn_id is null
      and (%(held)s::int8 is null or %(held)s = ({_HELD}))
    returning session_id)
update turn t set input = %(input)s, output = %(output)s, original = null from s
where t.session_id = s.session_id and t.turn_id = %(turn_id)s and t.state = '{TurnState.DONE}'
  and t.input = %(old_input)s and t.output is not distinct from %(old_output)s returning n"""
PRUNE = """
update turn set vault = x.vault from unnest(%(turn_ids)s::uuid[], %(old)s::bytea[], %(vaults)s::bytea[]) x (turn_id, old, vault)
where turn.turn_id = x.turn_id and turn.vault = x.old"""
FORGET_LOOSE = """
delete from turn where turn_id = %(turn_id)s and tenant_id = %(tenant_id)s and session_id is null
returning key_id"""
FORGET_UNUSED_KEY = """
delete from turn_key k where key_id = %(key_id)s and not exists (select from turn t where t.key_id = k.key_id)"""

# ---------------------------------------------------------------- retention

FORGET_OLD_TURNS = """
with old as (select t.turn_id from turn t join tenant a using (tenant_id)
    where t.session_id is null and t.state not in ('queued', 'running')
      and t.created_at < now() - make_interval(days => greatest(%(days)s::int, a.retention_days))
    order by t.created_at limit %(limit)s)
delete from turn using old where turn.turn_id = old.turn_id"""
_OLD_SESSIONS = """select s.session_id from session s join tenant a using (tenant_id)
    where s.turn_id is null and s.used_at < now() - make_interval(days => greatest(%(days)s::int, a.retention_days))"""
FORGET_OLD_SESSIONS = f"""
with old as ({_OLD_SESSIONS} order by s.used_at limit %(limit)s for update of s skip locked)
delete from session using old where session.session_id = old.session_id"""
COUNT_OLD_SESSIONS = f"select count(*) from ({_OLD_SESSIONS}) old"
FORGET_OLD_KEYS = """
delete from turn_key k where not exists (select from turn t where t.key_id = k.key_id)
  and not exists (select from session s where s.key_id = k.key_id)"""

# ---------------------------------------------------------------- redaction of what is stored

# Conversations, and responses that continue nothing, or something that was deleted.
FAMILIES = """
select session_id, null::uuid, concat_ws(' ', meta::text, (
  select string_agg(t.idempotency_key, ' ') from turn t where t.session_id = s.session_id))
from session s where tenant_id = %(tenant_id)s
union all
select null, t.turn_id, t.idempotency_key from turn t where t.tenant_id = %(tenant_id)s and t.session_id is null
  and not exists (select from turn p where p.turn_id = t.parent_turn)"""
# One of them with all responses that continue it, those before others first.
FAMILY = """
with recursive family as (
  select turn_id, 0 as depth from turn where tenant_id = %(tenant_id)s and (session_id = %(session_id)s or turn_id = %(turn_id)s)
  union all select t.turn_id, f.depth + 1 from turn t join family f on t.parent_turn = f.turn_id
  where t.tenant_id = %(tenant_id)s and t.session_id is null)
select turn_id, t.session_id, t.parent_turn, t.state, t.input, t.original, t.output, t.vault, t.key_id
from family f join turn t using (turn_id) order by f.depth, t.n"""
SUMMARY = "select summary, key_id from session where session_id = %(session_id)s"
OPEN_BATCHES = f"""
select batch_id from turn
where tenant_id = %(tenant_id)s and batch_id is not null and state in ('{TurnState.QUEUED}', '{TurnState.RUNNING}')"""
LOCK_FAMILY = "select turn_id from session where session_id = %(session_id)s for no key update"
REDACT = f"""
update turn set input = %(input)s, original = %(original)s, output = %(output)s, vault = %(vault)s
where turn_id = %(turn_id)s and state not in ('{TurnState.QUEUED}', '{TurnState.RUNNING}')
  and input = %(old_input)s and original is not distinct from %(old_original)s
  and output is not distinct from %(old_output)s and vault is not distinct from %(old_vault)s"""
FORGET_SUMMARY = """
update session set base = 0, summary = null, checkpoint_n = null, edits = edits + 1
where session_id = %(session_id)s and turn_id is null"""
