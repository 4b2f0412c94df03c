"""The SQL of objects that are removed some days after their rows."""

PLAN = """
insert into object_removal (path, due_at)
select path, now() + make_interval(days => %(days)s) from unnest(%(paths)s::text[]) path
on conflict do nothing"""

DUE = "select path from object_removal where due_at <= now() order by due_at, path limit %(limit)s"

DONE = "delete from object_removal where path = any(%(paths)s)"
