"""The SQL of changes."""

from app.changes.kinds import ChangeKind

RECORD = """
insert into change (at, kind, subject, tenant_id, data)
values (coalesce(%(at)s::timestamptz, now()), %(kind)s, %(subject)s, %(tenant_id)s, %(data)s)"""


def also(rows: str) -> str:
    """An INSERT for a CTE of another statement. `rows`: a query of (at, kind, subject, data)."""
    return f"insert into change (at, kind, subject, data) {rows}"


# A part that starts with another version than the last one of its name has changed it.
START = f"""
with last as (select data->>'version' as version from change
  where subject = %(part)s and kind = '{ChangeKind.PART_STARTED}' order by at desc, change_id desc limit 1)
insert into change (kind, subject, data)
select '{ChangeKind.VERSION_CHANGED}', %(part)s, jsonb_build_object('from', version, 'to', %(version)s::text)
  from last where version <> %(version)s
union all select '{ChangeKind.PART_STARTED}', %(part)s,
  jsonb_build_object('version', %(version)s::text, 'host', %(host)s::text, 'pid', %(pid)s::int)"""

_WHERE = {
    "since": "c.at >= %(since)s",
    "before": "(c.at, c.change_id) < (%(before_at)s, %(before)s)",
    "kinds": "c.kind = any(%(kinds)s)",
    "subject": "c.subject = %(subject)s",
    "tenant_id": "(c.tenant_id is null or c.tenant_id = %(tenant_id)s)",
}


def page(given: frozenset[str]) -> str:
    """The newest changes that the filters of these names let pass, with the names of their accounts."""
    conditions = " and ".join(_WHERE[name] for name in _WHERE if name in given) or "true"
    return f"""
select c.change_id, c.at, c.kind, c.subject, t.account_id, c.data
from (select * from change c where {conditions} order by c.at desc, c.change_id desc limit %(limit)s) c
left join tenant t using (tenant_id) order by c.at desc, c.change_id desc"""


# Both bounds hold: a part that starts again and again must not fill the disk.
PRUNE = """
with too_old as (select greatest(now() - make_interval(days => %(days)s),
    (select at from change order by at desc, change_id desc offset %(rows)s limit 1)) as at)
delete from change c using too_old where c.at <= too_old.at"""
