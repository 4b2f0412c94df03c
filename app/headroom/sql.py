"""All SQL of the decision log. Reading and pruning use its one index, (engine_id, at, decision_id)."""

from app.changes import sql as changes
from app.changes.kinds import ChangeKind

# The columns that the caller gives, with their types. `age`: seconds since the decision.
GIVEN = {
    "age": "float8",
    "layer": "text",
    "was_allowance": "int",
    "allowance": "int",
    "was_reason": "text",
    "reason": "text",
    "signal": "text",
    "value": "float8",
    "threshold": "float8",
    "in_flight": "int",
    "credited": "int",
    "detail": "text",
}
_REST = ", ".join(name for name in GIVEN if name != "age")

# A failure that closes the gate, and its end, are changes of the installation too.
_FAILS, _FAILED = "(reason = any(%(failures)s))", "(was_reason = any(%(failures)s))"
_CHANGES = f"""select at, case when {_FAILS} then '{ChangeKind.GATE_CLOSED}' else '{ChangeKind.GATE_OPENED}' end, %(engine)s,
  jsonb_strip_nulls(jsonb_build_object('engine', %(engine)s::text, 'reason', reason, 'was', was_reason, 'signal', signal,
    'value', value, 'threshold', threshold, 'detail', detail)) from given where {_FAILS} <> {_FAILED}"""

RECORD = f"""
with given as materialized (select clock_timestamp() - make_interval(secs => v.age) as at, place, {_REST}
  from unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in GIVEN.items())})
    with ordinality v (age, {_REST}, place)),
 noted as ({changes.also(_CHANGES)})
insert into decision (engine_id, at, {_REST})
select %(engine_id)s, at, {_REST} from given order by place"""

# A filter looks at so many of the newest rows before the position, and no further.
MOST_FILTERED = 2_000
KINDS = {"all": "true", "closed": "allowance = 0", "failures": "reason = any(%(failures)s)"}


def recent(kind: str) -> str:
    """Up to `limit` decisions of an engine before a position, newest first. `kind`: a key of KINDS."""
    newest = f"""select at, decision_id, {_REST} from decision where engine_id = %(engine_id)s
      and (%(before_at)s::timestamptz is null or (at, decision_id) < (%(before_at)s, %(before)s))
      order by at desc, decision_id desc"""
    if kind == "all":
        return f"{newest} limit %(limit)s"
    return f"select * from ({newest} limit {MOST_FILTERED}) d where {KINDS[kind]} limit %(limit)s"


# Deletes a bounded number of the oldest rows: those beyond the newest `keep_rows`, and those that are too old.
PRUNE = """
with newest_to_delete as (select greatest(
    now() - make_interval(secs => %(keep_seconds)s),
    (select at from decision where engine_id = %(engine_id)s order by at desc offset %(keep_rows)s limit 1)) as at),
 oldest as materialized (select d.at, d.decision_id from decision d, newest_to_delete
    where d.engine_id = %(engine_id)s and d.at <= newest_to_delete.at order by d.at, d.decision_id limit %(at_once)s)
delete from decision d using oldest
where d.engine_id = %(engine_id)s and d.at = oldest.at and d.decision_id = oldest.decision_id"""

# Its own worker prunes the log of an engine, so that of one that is forgotten goes with it.
FORGET = "delete from decision where engine_id = any(%(engine_ids)s)"
