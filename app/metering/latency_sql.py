"""The SQL of latencies by minute."""

# A process stores all that it has counted of a minute so far, so storing it twice counts nothing twice.
STORE = """
insert into latency_minute (minute, writer, model, beside, requests, first_token, gap)
values (%(minute)s, %(writer)s, %(model)s, %(beside)s, %(requests)s, %(first_token)s::int[], %(gap)s::int[])
on conflict (minute, model, beside, writer) do update
set requests = excluded.requests, first_token = excluded.first_token, gap = excluded.gap"""

FORGET_OLD = "delete from latency_minute where minute < now() - make_interval(days => %(days)s)"

# The minutes from `since` to `until`, and those of the same hours of so many days before. The sketches of a stretch of time are
# added in the process.
READ = """
select to_timestamp(floor(extract(epoch from l.minute) / %(stretch)s) * %(stretch)s), beside, model, requests, first_token, gap
from generate_series(0, %(days)s::int) day cross join lateral (
  select * from latency_minute
  where minute >= %(since)s - make_interval(days => day) and minute < %(until)s - make_interval(days => day)
    and (%(model)s::text is null or model = %(model)s)) l
order by l.minute"""
