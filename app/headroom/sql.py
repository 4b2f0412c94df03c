"""All SQL of the decision log. Reading and pruning use its one index, (engine_id, at, decision_id)."""

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

RECORD = f"""
insert into decision (engine_id, at, {_REST})
select %(engine_id)s, clock_timestamp() - make_interval(secs => v.age), {_REST}
from unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in GIVEN.items())})
  with ordinality v (age, {_REST}, place)
order by place"""

RECENT = f"""
select at, {_REST} from decision where engine_id = %(engine_id)s order by at desc, decision_id desc limit %(limit)s"""

# Deletes a bounded number of the oldest rows: those beyond the newest `keep_rows`, and those that are too old.
PRUNE = """
with newest_to_delete as (select greatest(
    now() - make_interval(secs => %(keep_seconds)s),
    (select at from decision where engine_id = %(engine_id)s order by at desc offset %(keep_rows)s limit 1)) as at),
 oldest as materialized (select d.at, d.decision_id from decision d, newest_to_delete
    where d.engine_id = %(engine_id)s and d.at <= newest_to_delete.at order by d.at, d.decision_id limit %(at_once)s)
delete from decision d using oldest
where d.engine_id = %(engine_id)s and d.at = oldest.at and d.decision_id = oldest.decision_id"""
