"""The SQL of the daily partitions of `item_payload` and `item_result`. A day is a range of batch ids."""

EXISTING = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('item_payload'::regclass, 'item_result'::regclass)"""

DAYS = """
select to_char(day, 'YYYYMMDD'), (day::date - date '2024-01-01')::bigint << 36, (day::date + 1 - date '2024-01-01')::bigint << 36
from generate_series((now() at time zone 'utc')::date, (now() at time zone 'utc')::date + %(days)s, interval '1 day') day"""

LOCK = "select pg_advisory_xact_lock(hashtext('slackwater partitions'))"
CREATE = "create table {name} (like {parent} including all)"
ATTACH = "alter table {parent} attach partition {name} for values from ({low}) to ({high})"
