"""The SQL of sign-in links and sessions."""

_GRANT = "subject, role, tenant_id"


def _account(table: str) -> str:
    """The name of the account of a row; null: the installation."""
    return f"(select t.account_id from tenant t where t.tenant_id = {table}.tenant_id)"


ADD_LINK = f"""
insert into console_login (hash, {_GRANT}, expires_at)
values (%(hash)s, %(subject)s, %(role)s, %(tenant_id)s, now() + %(lifetime)s)
returning {_account("console_login")}, expires_at"""

FIND_LINK = f"""
select {_GRANT} from console_login where hash = %(hash)s and expires_at > now()"""

# A link opens one session: whoever deletes its row gets it. Old links go at the same time.
USE_LINK = f"""
with gone as (delete from console_login where hash = %(hash)s or expires_at <= now() returning *)
insert into console_session (hash, {_GRANT}, expires_at)
select %(session)s, {_GRANT}, now() + %(lifetime)s from gone where gone.hash = %(hash)s and gone.expires_at > now()
returning session_id, {_GRANT}, {_account("console_session")}"""

OPEN_SESSION = f"""
insert into console_session (hash, {_GRANT}, expires_at)
values (%(session)s, %(subject)s, %(role)s, %(tenant_id)s, now() + %(lifetime)s)
returning session_id, {_account("console_session")}"""

_LIVE = "s.revoked_at is null and s.expires_at > now() and s.seen_at > now() - %(idle)s::interval"

FIND_SESSION = f"""
select s.session_id, s.subject, s.role, s.tenant_id, t.account_id, s.signed_in_at, s.expires_at,
       s.seen_at < now() - interval '1 minute'
from console_session s left join tenant t on t.tenant_id = s.tenant_id
where s.hash = %(hash)s and {_LIVE} and coalesce(t.state, 'active') = 'active'"""

SEE_SESSION = """
update console_session set seen_at = now()
where session_id = %(session_id)s and seen_at < now() - interval '1 minute'"""

LIST_SESSIONS = f"""
select s.session_id, s.subject, s.role, t.account_id, s.signed_in_at, s.seen_at, s.expires_at
from console_session s left join tenant t on t.tenant_id = s.tenant_id
where {_LIVE} and (%(tenant_id)s::int is null or s.tenant_id = %(tenant_id)s)
  and (%(before)s::int8 is null or s.session_id < %(before)s) order by s.session_id desc limit %(limit)s"""

REVOKE_SESSION = f"""
update console_session set revoked_at = now()
where session_id = %(session_id)s and revoked_at is null and expires_at > now()
  and (%(tenant_id)s::int is null or tenant_id = %(tenant_id)s)
returning subject, role, {_account("console_session")}"""

FORGET_SESSIONS = "delete from console_session where expires_at < now() - interval '1 day'"
