"""The SQL of lists of conversations and of their turns, without what was said."""

from collections.abc import Collection

from app.states import TurnState

# `n`, `model` and tokens are those of the last turn that has ended and was answered by a model.
_SESSION = f"""
select s.session_id, s.tenant_id, t.account_id, s.version, s.turn_id is not null,
       exists (select from turn q where q.session_id = s.session_id and q.state = '{TurnState.QUEUED}'),
       s.base, s.summary is not null, s.checkpoint_batch is not null, s.slope, s.meta, s.key_id is not null, s.created_at,
       s.used_at, l.model, l.prompt_tokens, l.completion_tokens
from {{source}} join tenant t on t.tenant_id = s.tenant_id
left join lateral (select model, prompt_tokens, completion_tokens from turn
  where session_id = s.session_id and state = '{TurnState.DONE}' and model is not null order by n desc limit 1) l on true"""

_WHERE = {
    "tenant_id": "s.tenant_id = %(tenant_id)s",
    "account": "s.tenant_id = (select tenant_id from tenant where account_id = %(account)s)",
    "busy": "s.turn_id is not null",
    "growing": "s.slope > 0",
    "id_from": "s.session_id >= %(id_from)s and s.session_id <= %(id_to)s",
    "after": "(s.used_at, s.session_id) < (%(after_at)s, %(after)s)",
    "before": "(s.used_at, s.session_id) > (%(before_at)s, %(before)s)",
}
CONDITIONS = tuple(_WHERE)


def page(given: Collection[str]) -> str:
    """A page of conversations with the conditions of these names, the last used first; with `before`, those just before it, in
    the other order.
    """
    conditions = " and ".join(_WHERE[name] for name in _WHERE if name in given)
    way = "asc" if "before" in given else "desc"
    by = f"order by s.used_at {way}, s.session_id {way}"
    where = f"where {conditions} " if conditions else ""
    return _SESSION.format(source=f"(select * from session s {where}{by} limit %(limit)s) s") + f" {by}"


ONE = (
    _SESSION.format(source="session s")
    + " where s.session_id = %(session_id)s and (%(tenant_id)s::int is null or s.tenant_id = %(tenant_id)s)"
)

_TURN = """
select t.n, t.turn_id, t.state, t.model, t.original is not null, b.request_id, t.prompt_tokens, t.cached_tokens,
       t.completion_tokens, t.created_at, t.finished_at
from turn t left join batch b on b.batch_id = t.batch_id where t.session_id = %(session_id)s"""

# The newest turns of a conversation before a number.
TURNS = f"{_TURN} and (%(before)s::int is null or t.n < %(before)s) order by t.n desc limit %(limit)s"
TURN = f"{_TURN} and t.n = %(n)s"

# What was said in a turn. Only a reveal reads it.
BODIES = "select turn_id, input, output, key_id from turn where session_id = %(session_id)s and n = %(n)s"
