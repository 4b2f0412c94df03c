"""The SQL of the demand for engines, as the steward last saw it."""

DEMAND = """
select s.engine_pace, s.start_seconds, s.engines,
       array(select extract(epoch from deadline - now())::float8 from unnest(s.deadlines) d (deadline)),
       s.tokens, extract(epoch from now() - s.at)::float8
from pool p left join pool_status s using (pool_id) where p.model = %(model)s"""
