"""The SQL of duties."""

ENTER = "insert into duty (name) select unnest(%(names)s::text[]) on conflict do nothing"

ASK = """
update duty d set asked_at = now(), due_at = now() + a.retry * interval '1 second'
from unnest(%(names)s::text[], %(retries)s::float8[]) a (name, retry)
where d.name = a.name and d.due_at <= now() returning d.name"""

HASTEN = "update duty set due_at = now() where name = %(name)s and due_at > now() and asked_at is null"

IS_ASKED = "select from duty where name = %(name)s and asked_at is not null"

# Held by the session that does the duty; it ends with its connection.
LOCK = "select pg_try_advisory_lock(hashtext('slackwater duty'), hashtext(%(name)s))"
# A worker that hangs does not close its connection: the server does so, and another worker may begin.
IDLE_TIMEOUT = "set idle_session_timeout = '30s'"

BEGIN = "update duty set began_at = now() where name = %(name)s and asked_at is not null returning 1"

SUCCEED = """
update duty set succeeded_at = now(), took_ms = %(took_ms)s, error = null, asked_at = null,
       due_at = now() + %(seconds)s::float8 * interval '1 second'
where name = %(name)s"""

FAIL = """
update duty set failed_at = now(), error = %(error)s, asked_at = null,
       due_at = now() + %(seconds)s::float8 * interval '1 second'
where name = %(name)s"""

# What was asked for is still to be done.
STOP = "update duty set due_at = now() where name = %(name)s"

STANDING = """
select name, began_at, succeeded_at, took_ms, failed_at, error, due_at,
       extract(epoch from now() - coalesce(succeeded_at, since))::float8
from duty"""
