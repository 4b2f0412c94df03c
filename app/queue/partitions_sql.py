"""The SQL of the daily partitions of `item_payload` and `item_result`. A day is a range of batch ids."""

EXISTING = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent in ('item_payload'::regclass, 'item_result'::regclass)"""

DAYS = """
select to_char(day, 'YYYYMMDD'), (day::date - date '2024-01-01')::bigint << 36, (day::date + 1 - date '2024-01-01')::bigint << 36
from generate_series((now() at time zone 'utc')::date, (now() at time zone 'utc')::date + %(days)s, interval '1 day') day"""

LOCK = "select pg_advisory_xact_lock(hashtext('slackwater partitions'))"
CREATE = "create table {name} (like {parent} including all)"
# Columns of contents, of which ANALYZE keeps no values. LIKE does not copy that.
UNSAMPLED = """
select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped and attstattarget = 0"""
UNSAMPLE = "alter table {name} alter {column} set statistics 0"
HAND_OVER = "alter table {name} owner to {owner}"
# Whose the tables of all days are, if not ours: `slackwater migrate` creates days, which are dropped under the steward's role.
OTHER_OWNER = """
select pg_get_userbyid(relowner) from pg_class
where oid = 'item_result'::regclass and pg_get_userbyid(relowner) <> current_user"""
ATTACH = "alter table {parent} attach partition {name} for values from ({low}) to ({high})"

# The rights to the tables of all days that a role lacks on those of a day, which statements name.
LACKING = """
select c.relname, pg_get_userbyid(a.grantee), string_agg(a.privilege_type, ', ')
from pg_inherits i join pg_class p on p.oid = i.inhparent join pg_class c on c.oid = i.inhrelid
cross join lateral aclexplode(p.relacl) a
where p.oid in ('item_payload'::regclass, 'item_result'::regclass) and a.grantee not in (0, p.relowner)
  and not exists (select from aclexplode(c.relacl) own
                  where own.grantee = a.grantee and own.privilege_type = a.privilege_type)
group by 1, 2"""
GRANT = "grant {rights} on {name} to {role}"

# The days that are over, of which the last batches may just have ended, and that have not been vacuumed since midnight.
TO_FREEZE = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
join pg_stat_all_tables t on t.relid = c.oid cross join (select (now() at time zone 'utc')::date) x (today)
where i.inhparent in ('item_payload'::regclass, 'item_result'::regclass)
  and to_date(right(c.relname, 8), 'YYYYMMDD') between x.today - %(days)s and x.today - 1
  and coalesce(t.last_vacuum at time zone 'utc' < x.today, true) order by 1"""
FREEZE = "vacuum (freeze, analyze) {name}"
