"""Checks of the database: whether it answers, how it is set, the pooler before it, its connections and its standbys."""

from collections.abc import Callable
from functools import wraps

import psycopg
from psycopg import conninfo
from psycopg.rows import TupleRow

from app import optional_packages
from app.causes import cause
from app.cli.doctor.check import Check, fail, ok, skip, warn
from app.db import direct, embedded, schema, session_settings
from app.errors import BehindPooler
from app.settings import Settings

OLDEST_POSTGRES = 15
OLDEST_PGBOUNCER = (1, 22)  # the first one that passes on prepared statements and their end
PREPARED_STATEMENTS = 200  # more than our own, so that none is parsed twice
CONNECT_SECONDS = 3
_OTHER_PARTS = 5  # API, steward, maintenance, notifier, console
_DIRECT_FIX = "set SLACKWATER_DATABASE_DIRECT_URL to the address of the database itself"

_CONNECTIONS = """
select current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int,
       (select count(distinct (host, pid)) from worker where lease_until > now())"""
# From a role that may not see statistics, PostgreSQL hides `state` and `sync_state`.
_STANDBYS = """
select application_name, sync_state, state is null, quote_ident(current_user) from pg_stat_replication
 where state = 'streaming' or state is null order by application_name"""

Connection = psycopg.Connection[TupleRow]


def database(settings: Settings) -> Check:
    """Whether PostgreSQL answers, is new enough and has this version's schema."""
    try:
        with _connected(embedded.database_url(settings)) as conn:
            return _server(conn)
    except psycopg.OperationalError as error:
        if not settings.database_url and not optional_packages.EMBEDDED.installed:
            return fail("database", "embedded PostgreSQL is not installed", optional_packages.EMBEDDED.remedy)
        if not settings.database_url:
            return skip("database", "embedded, not running; `slackwater up` starts it")
        first = cause(error)
        return fail("database", first, "start PostgreSQL, or correct SLACKWATER_DATABASE_URL")


def _server(conn: Connection) -> Check:
    number = conn.info.server_version
    place = f"PostgreSQL {number // 10000}.{number % 10000} at {conn.info.host}"
    if number < OLDEST_POSTGRES * 10000:
        return fail("database", place, f"PostgreSQL {OLDEST_POSTGRES} or newer is needed")
    found, own = schema.read(conn), schema.own_revision()
    if found.is_behind(own):
        return _behind(conn, found, own, place)
    if found.hidden is not None:
        return fail("database", f"{place}. {found.hidden[0]}", found.hidden[1])
    if problem := found.problem(own):
        fix = "make a new database" if found.is_unreleased else "install a newer version of Slackwater here"
        return fail("database", f"{place}. {problem}", fix)
    if found.revision == own and found.floor < own:
        fix = "once no older version runs: slackwater migrate --contract"
        return warn("database", f"{place}, schema {found.revision}, still open to versions from {found.floor} on", fix)
    return ok("database", f"{place}, schema {found.revision}")


def _behind(conn: Connection, found: schema.Schema, own: str, place: str) -> Check:
    if (lacking := schema.lacking(conn)) is not None:
        return fail("database", f"{place}. {lacking[0]}", lacking[1])
    if found.revision is None:
        return warn("database", f"{place}; no schema yet; `slackwater up` makes it", "without up: slackwater migrate")
    return fail("database", f"{place}; schema {found.revision}, not {own}", "slackwater migrate, or slackwater up")


def _of_answering(name: str) -> Callable[[Callable[[Settings, Connection], Check]], Callable[[Settings], Check]]:
    """A check called `name` that needs a connection. Without one it has nothing to say, since `database` says it."""

    def decorate(look: Callable[[Settings, Connection], Check]) -> Callable[[Settings], Check]:
        @wraps(look)
        def check(settings: Settings) -> Check:
            try:
                conn = _connected(embedded.database_url(settings))
            except psycopg.OperationalError:
                return skip(name, "unknown, because the database does not answer")
            with conn:
                return look(settings, conn)

        return check

    return decorate


@_of_answering("database settings")
def settings_of_server(settings: Settings, conn: Connection) -> Check:
    """Whether the server keeps what it confirms, and plans statements as they need it. The first migration sets the latter."""
    reading, migrated = session_settings.read(conn), schema.read(conn).revision is not None
    if (found := session_settings.problem(reading) if migrated else session_settings.losing(reading)) is not None:
        return fail("database settings", *found)
    return ok("database settings", "nothing that was confirmed is lost in a crash")


@_of_answering("pooler")
def pooler(settings: Settings, conn: Connection) -> Check:
    """Whether a pooler passes prepared statements on, and the database itself can be reached beside it."""
    try:
        with _connected(embedded.direct_url(settings)) as own:
            direct.check(own)
    except BehindPooler as error:
        return fail("pooler", error.message, _DIRECT_FIX)
    except psycopg.OperationalError as error:
        return fail("pooler", f"the direct URL: {cause(error)}", _DIRECT_FIX)
    if not direct.is_pooled(conn):
        return ok("pooler", "none")
    return _pgbouncer(conninfo.make_conninfo(embedded.database_url(settings), dbname="pgbouncer"))


def _pgbouncer(console: str) -> Check:
    try:
        with _connected(console) as conn:
            row = conn.execute("show version").fetchone()
            values = {str(name): str(value) for name, value, *_ in conn.execute("show config").fetchall()}
    except psycopg.Error:
        fix = "add our user to its stats_users, so that its version and settings can be checked"
        return warn("pooler", "there is one, and its console refuses us", fix)
    seen = str(row[0]) if row else "a pooler"
    number = tuple(int(part) for part in seen.rpartition(" ")[2].split(".")[:2] if part.isdigit())
    if seen.startswith("PgBouncer") and number < OLDEST_PGBOUNCER:
        return fail("pooler", seen, f"PgBouncer {'.'.join(map(str, OLDEST_PGBOUNCER))} or newer is needed")
    prepared, mode = int(values.get("max_prepared_statements", 0)), values.get("pool_mode", "")
    if prepared < PREPARED_STATEMENTS and mode != "session":
        found = f"{seen}, max_prepared_statements = {prepared}"
        return fail("pooler", found, f"set max_prepared_statements = {PREPARED_STATEMENTS}")
    if mode == "statement":
        return fail("pooler", f"{seen}, pool_mode = statement", "set pool_mode = transaction")
    return ok("pooler", f"{seen}, pool_mode = {mode}")


@_of_answering("connections")
def connections(settings: Settings, conn: Connection) -> Check:
    """Whether the server has room for the connections of all processes."""
    if direct.is_pooled(conn):
        return ok("connections", "the pooler limits them")
    try:
        row = conn.execute(_CONNECTIONS).fetchone()
    except psycopg.errors.UndefinedTable:
        return ok("connections", "no worker yet")
    assert row is not None
    room, processes = row
    most = settings.database_pool_size * (processes + _OTHER_PARTS)
    seen = f"up to {most} of {processes} worker processes and {_OTHER_PARTS} other processes; the server has room for {room}"
    if most > room:
        fix = (
            "raise max_connections, lower SLACKWATER_DATABASE_POOL_SIZE, or put PgBouncer in between (docs/operate.md)"
        )
        return warn("connections", seen, fix)
    return ok("connections", seen)


@_of_answering("standbys")
def standbys(settings: Settings, conn: Connection) -> Check:
    """Whether a failover to a standby could lose what was confirmed."""
    found = conn.execute(_STANDBYS).fetchall()
    if not found:
        return ok("standbys", "none seen")
    names = ", ".join(str(name) for name, *_ in found)
    _, _, hidden, role = found[0]
    if hidden:
        seen = f"{names}: whether a failover may lose what was confirmed is hidden from {role}"
        return warn("standbys", seen, f"as an administrator: grant pg_read_all_stats to {role}")
    if any(state in ("sync", "quorum") for _, state, *_ in found):
        return ok("standbys", ", ".join(f"{name} ({state})" for name, state, *_ in found))
    fix = "set synchronous_standby_names (Patroni: synchronous_mode_strict; CloudNativePG: dataDurability: required)"
    return warn("standbys", f"{names}: asynchronous, so a failover may lose what was confirmed", fix)


def _connected(url: str) -> Connection:
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)
