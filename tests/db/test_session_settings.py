"""Claims about what the server has to be set to: `migrate` sets it, and who would lose something refuses to work."""

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from app.cli.doctor import database as doctor
from app.cli.doctor.check import CheckStatus
from app.db import migrate, schema, session_settings
from app.db.pool import Database
from app.db.session_settings import DURABILITY_SETTINGS, ENCODING, OF_ROLE, Reading
from app.errors import SchemaMismatch, ServerUnfit
from app.settings import Settings
from workers.notifier.async_bridge import AsyncBridge
from workers.steward.leader import leadership

FIT = {**OF_ROLE, **{name: good[0] for name, good in DURABILITY_SETTINGS.items()}, "server_encoding": ENCODING}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("synchronous_commit", "off"),
        ("synchronous_commit", "local"),
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("enable_seqscan", "on"),
        ("plan_cache_mode", "auto"),
        ("jit", "on"),
        ("idle_in_transaction_session_timeout", "0"),
        ("DateStyle", "SQL, DMY"),
        ("default_transaction_read_only", "on"),
        ("extra_float_digits", "0"),
        ("idle_session_timeout", "1min"),
        ("transaction_timeout", "1min"),
    ],
)
def test_a_server_that_loses_what_it_confirms_or_plans_otherwise_is_named_with_the_remedy(
    name: str, value: str
) -> None:
    found = session_settings.problem(Reading("ann", "batches", FIT | {name: value}))
    assert found is not None
    problem, remedy = found
    assert f"{name} = {value}" in problem
    assert name in remedy
    assert "ann" in remedy


def test_a_server_that_keeps_everything_is_fit() -> None:
    assert session_settings.problem(Reading("ann", "batches", FIT)) is None
    assert session_settings.problem(Reading("ann", "batches", FIT | {"synchronous_commit": "remote_apply"})) is None


async def test_a_role_without_the_settings_is_refused_until_migrate_has_set_them(
    settings: Settings, database_url: str, administer: Callable[[str], None]
) -> None:
    administer("create role plain login superuser")
    try:
        url = database_url.replace("postgres@", "plain@")
        async with Database(url) as database:
            with pytest.raises(ServerUnfit, match='alter role "plain" in database'):
                await session_settings.require_at_start(database)
        with pytest.raises(ServerUnfit):
            async with leadership(url, asyncio.Event()):
                pass
        notifier = AsyncBridge(settings.model_copy(update={"database_url": url}))
        with pytest.raises(ServerUnfit):
            await notifier._open()
        await notifier._database.close()
        migrate.upgrade(url)
        async with Database(url) as database:
            await session_settings.require_at_start(database)
            async with database.durable() as conn:
                await session_settings.require(conn)
    finally:
        administer("drop role plain")


# What an administrator may have set for a role, of which each made requests fail or read otherwise.
STRANGE = {
    "client_encoding": "LATIN1",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Pacific/Chatham",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "statement_timeout": "2s",
    "lock_timeout": "1ms",
    "extra_float_digits": "0",
    "array_nulls": "off",
    "row_security": "off",
    "idle_session_timeout": "1s",
}


@pytest.fixture
def empty(database_url: str, administer: Callable[[str], None]) -> Iterator[Callable[..., str]]:
    """Makes an empty database, and a role `odd`. Returns the URL with that role."""

    def make(options: str = "", role: str = "") -> str:
        administer(f"create database empty {options} template template0")
        administer(f"create role odd login {role}")
        return re.sub(r"/\w+\?", "/empty?", database_url).replace("postgres@", "odd@")

    yield make
    administer("drop database if exists empty with (force)")
    administer("drop role if exists odd")


async def test_whatever_was_set_for_a_role_migrate_sets_what_statements_rely_on(
    empty: Callable[..., str], administer: Callable[[str], None]
) -> None:
    url = empty(role="superuser")
    for name, value in STRANGE.items():
        administer(f"alter role odd set {name} = '{value}'")
    migrate.upgrade(url)
    moment = datetime(2026, 11, 27, tzinfo=UTC)
    async with Database(url) as database, database.durable() as conn:
        await session_settings.require(conn)
        odd = "select %s::timestamptz, 'é😀', interval '36 hours', 0.1::float8 + 0.2::float8, %s::text[]"
        row = await (await conn.execute(odd, (moment, ["a", None]))).fetchone()
    assert row == (moment, "é😀", timedelta(hours=36), 0.1 + 0.2, ["a", None])


def test_a_setting_that_a_server_does_not_have_is_not_asked_of_it(database_url: str) -> None:
    without = {name: value for name, value in FIT.items() if name != "transaction_timeout"}
    assert session_settings.problem(Reading("ann", "batches", without)) is None
    with psycopg.connect(database_url) as conn:
        has, version = session_settings.of_server(conn), conn.info.server_version
    assert ("transaction_timeout" in has) == (version >= 170_000)


def test_a_database_that_has_no_place_for_every_character_is_refused_before_it_is_migrated(
    settings: Settings, empty: Callable[..., str]
) -> None:
    url = empty("encoding 'LATIN1' lc_collate 'C' lc_ctype 'C'", "superuser")
    with pytest.raises(ServerUnfit, match=r"LATIN1.*encoding 'UTF8'"):
        migrate.upgrade(url)
    with psycopg.connect(url) as conn:
        assert schema.read(conn).revision is None
    check = doctor.settings_of_server(settings.model_copy(update={"database_url": url}))
    assert (check.status, "encoding 'UTF8'" in check.fix) == (CheckStatus.FAIL, True)


def test_a_role_that_may_not_make_tables_is_told_what_an_administrator_grants(
    settings: Settings, empty: Callable[..., str]
) -> None:
    url = empty()
    grant = 'grant create on database "empty" to "odd"; grant usage, create on schema "public" to "odd";'
    with pytest.raises(ServerUnfit, match=re.escape(grant)):
        migrate.upgrade(url)
    check = doctor.database(settings.model_copy(update={"database_url": url}))
    assert (check.status, grant in check.fix) == (CheckStatus.FAIL, True)
    with psycopg.connect(url.replace("odd@", "postgres@"), autocommit=True) as conn:
        conn.execute(grant.encode())
    migrate.upgrade(url)


ELSEWHERE = "alter role odd in database empty set search_path = nowhere"


def test_a_role_whose_search_path_is_elsewhere_is_told_so(
    settings: Settings, empty: Callable[..., str], administer: Callable[[str], None]
) -> None:
    url, remedy = empty(role="superuser"), 'alter role "odd" in database "empty" set search_path = "public";'
    administer(ELSEWHERE)
    with pytest.raises(ServerUnfit, match=re.escape(remedy)) as told:
        migrate.upgrade(url)
    assert "search_path" in str(told.value)
    assert "grant" not in str(told.value)
    check = doctor.database(settings.model_copy(update={"database_url": url}))
    assert (check.status, remedy in check.fix) == (CheckStatus.FAIL, True)


async def test_tables_that_a_role_does_not_find_are_not_made_again(
    settings: Settings, empty: Callable[..., str], administer: Callable[[str], None]
) -> None:
    url, remedy = empty(role="superuser"), 'alter role "odd" in database "empty" set search_path = "public";'
    migrate.upgrade(url)
    administer(ELSEWHERE)
    with pytest.raises(SchemaMismatch, match=re.escape(remedy)):
        migrate.upgrade(url)
    async with Database(url) as database, database.durable() as conn:
        with pytest.raises(SchemaMismatch, match=r"are in the schema public.*search_path.*nowhere"):
            await schema.require(conn)
    check = doctor.database(settings.model_copy(update={"database_url": url}))
    assert (check.status, check.fix) == (CheckStatus.FAIL, f"`{remedy}`")
    administer("alter role odd reset all")
    administer("alter role odd in database empty set search_path = public")
    with psycopg.connect(url) as conn:
        assert schema.read(conn).problem(schema.own_revision()) is None


def test_what_an_administrator_has_set_for_the_database_does_not_make_commits_lossy_in_silence(
    database_url: str,
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute(f"alter role current_user in database {conn.info.dbname} set synchronous_commit = off".encode())
    with psycopg.connect(database_url) as conn:
        found = session_settings.problem(session_settings.read(conn))
    assert found is not None
    assert "synchronous_commit = off" in found[0]


async def test_who_starts_without_a_database_is_not_stopped() -> None:
    async with Database("postgresql://127.0.0.1:1/none", size=2, patience_seconds=0.1) as nowhere:
        await session_settings.require_at_start(nowhere)


def test_setting_it_again_changes_nothing(database_url: str) -> None:
    def settings_of() -> list[tuple[object, ...]]:
        with psycopg.connect(database_url) as conn:
            query = """select s.xmin::text, setconfig from pg_db_role_setting s join pg_database d on d.oid = setdatabase
                       where datname = current_database()"""
            return conn.execute(query).fetchall()

    migrate.upgrade(database_url)
    before = settings_of()
    migrate.upgrade(database_url)
    assert settings_of() == before != []
