"""Claims about what `slackwater doctor` says about a pooler, the settings of the server, its connections and its standbys."""

from collections.abc import Iterator

import psycopg
import pytest

from app import processes
from app.cli.doctor import database
from app.cli.doctor.check import CheckStatus
from app.settings import Settings
from testing import clusters
from testing.pgbouncer import pooling
from testing.waiting import wait_for
from tests.failover.servers import Server


def set_synchronous(server: Server, names: str, state: str) -> None:
    """Say for which standbys commits wait, and wait until the only one streams in this state."""
    with psycopg.connect(server.url, autocommit=True) as conn:
        conn.execute(f"alter system set synchronous_standby_names = '{names}'".encode())
        conn.execute("select pg_reload_conf()")
        asked = "select state, sync_state from pg_stat_replication"
        wait_for(lambda: conn.execute(asked).fetchall(), until=lambda found: found == [("streaming", state)])


@pytest.fixture(scope="module")
def primary() -> Iterator[Server]:
    """A server with a standby, for whose copy no commit waits."""
    with clusters.folder() as folder:
        first, second = (Server(folder / name, "127.0.0.1", processes.free_port()) for name in ("primary", "standby"))
        try:
            first.initialise()
            first.start()
            second.clone(first)
            second.start()
            set_synchronous(first, "", "async")
            yield first
        finally:
            second.close()
            first.close()


def test_a_pooler_that_passes_everything_on_is_named_with_its_version(pooled_settings: Settings) -> None:
    check = database.pooler(pooled_settings)
    assert (check.status, check.fix) == (CheckStatus.OK, "")
    assert check.detail.startswith("PgBouncer 1.")
    assert database.database(pooled_settings).status is CheckStatus.OK
    assert database.settings_of_server(pooled_settings).status is CheckStatus.OK
    assert "pooler" in database.connections(pooled_settings).detail


def test_without_a_direct_url_beside_it_the_remedy_is_named(pooled_settings: Settings) -> None:
    check = database.pooler(pooled_settings.model_copy(update={"database_direct_url": ""}))
    assert check.status is CheckStatus.FAIL
    assert "SLACKWATER_DATABASE_DIRECT_URL" in check.fix


def test_a_pooler_that_keeps_too_few_prepared_statements_fails(pooled_settings: Settings, settings: Settings) -> None:
    with clusters.folder() as folder, pooling(folder, settings.database_url, max_prepared_statements=0) as other:
        check = database.pooler(pooled_settings.model_copy(update={"database_url": other.url}))
    assert (check.status, check.fix) == (CheckStatus.FAIL, "set max_prepared_statements = 200")


def test_where_there_is_no_pooler_it_says_so(settings: Settings) -> None:
    check = database.pooler(settings)
    assert (check.status, check.detail) == (CheckStatus.OK, "none")
    assert database.standbys(settings).status is CheckStatus.OK


def test_settings_that_lose_commits_fail_with_their_remedy(settings: Settings) -> None:
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute(f"alter role current_user in database {conn.info.dbname} set synchronous_commit = off".encode())
    check = database.settings_of_server(settings)
    assert check.status is CheckStatus.FAIL
    assert "synchronous_commit = off" in check.detail
    assert "synchronous_commit = on" in check.fix


def test_more_connections_than_the_server_has_room_for_are_a_warning(settings: Settings) -> None:
    assert database.connections(settings).status is CheckStatus.OK
    check = database.connections(settings.model_copy(update={"database_pool_size": 1000}))
    assert check.status is CheckStatus.WARN
    assert "max_connections" in check.fix


def test_a_process_that_controls_several_engines_counts_once(settings: Settings) -> None:
    with psycopg.connect(settings.database_url, autocommit=True) as conn:
        conn.execute("insert into pool (model) values ('toy')")
        conn.execute(
            "insert into worker (pool_id, host, pid, lease_until)"
            " select pool_id, host, pid, now() + interval '1 minute' from pool, generate_series(1, 8),"
            " (values ('a', 1), ('a', 2), ('b', 1)) process (host, pid)"
        )
    check = database.connections(settings)
    assert check.detail.startswith(f"up to {8 * settings.database_pool_size} of 3 worker processes and 5 other")


def test_an_asynchronous_standby_is_a_warning_and_a_synchronous_one_is_none(primary: Server) -> None:
    settings = Settings(database_url=primary.url)
    check = database.standbys(settings)
    assert check.status is CheckStatus.WARN
    assert "walreceiver: asynchronous" in check.detail
    assert "synchronous_standby_names" in check.fix
    set_synchronous(primary, "*", "sync")
    check = database.standbys(settings)
    assert (check.status, check.detail) == (CheckStatus.OK, "walreceiver (sync)")
    set_synchronous(primary, "", "async")


def test_a_role_that_may_not_see_the_state_of_standbys_is_told_what_to_grant(primary: Server) -> None:
    with psycopg.connect(primary.url, autocommit=True) as conn:
        conn.execute('create role "plain-role" login')
        settings = Settings(database_url=primary.url.replace("postgres@", "plain-role@"))
        check = database.standbys(settings)
        assert check.status is CheckStatus.WARN
        grant = check.fix.removeprefix("as an administrator: ")
        assert grant == 'grant pg_read_all_stats to "plain-role"'
        conn.execute(grant.encode())
        assert "asynchronous" in database.standbys(settings).detail


def test_a_database_that_does_not_answer_is_told_once(settings: Settings) -> None:
    nowhere = settings.model_copy(update={"database_url": "postgresql://127.0.0.1:1/none"})
    assert database.database(nowhere).status is CheckStatus.FAIL
    for check in (database.settings_of_server, database.pooler, database.connections, database.standbys):
        assert check(nowhere).status is CheckStatus.SKIP
