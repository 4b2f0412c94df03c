"""The SQL of the gauges of pipelines."""

from app.queue.handoff_sql import SET_ASIDE

# Markers are taken in their order, so the first one of each kind that is due is the oldest.
_IS_DUE = "due < 'infinity' and due <= now()"
MARKERS = f"""
select coalesce((select max(extract(epoch from now() - due)) from (
         (select due from handoff where {_IS_DUE} and not input order by input, handoff_id limit 1)
         union all
         (select due from handoff where {_IS_DUE} and input order by input, handoff_id limit 1)) o), 0)::float8,
  (select count(*)::int from (select from handoff where due < 'infinity' limit %(most)s) w),
  (select count(*)::int from (select from handoff where {SET_ASIDE} limit %(most)s) s)"""

STATES = """
select state, count(*)::int from (select state from pipeline where finalized_at is null limit %(most)s) p group by 1"""
