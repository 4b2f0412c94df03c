"""Claims about the servers that a test run starts itself: each needs only its binary, and none stays running."""

from collections.abc import Callable

import psycopg
import pytest

from tests import servers

NOBODY = "tcp://127.0.0.1:9"


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without the address of any server."""
    for name in servers.HOW:
        monkeypatch.delenv(f"SLACKWATER_TEST_{name}", raising=False)
    monkeypatch.delenv("CI", raising=False)


def postgres_works(url: str) -> None:
    with psycopg.connect(url) as conn:
        assert conn.execute("select 1").fetchone() == (1,)


def rabbitmq_works(url: str) -> None:
    import kombu

    with kombu.Connection(url) as connection:
        connection.ensure_connection(max_retries=1)


def redis_works(url: str) -> None:
    import redis

    with redis.Redis.from_url(url) as client:
        assert client.ping()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "installed", "own", "works"),
    [
        ("POSTGRES", servers._postgres_binaries, servers.own_postgres, postgres_works),
        ("RABBITMQ", servers._rabbitmq_script, servers.own_rabbitmq, rabbitmq_works),
        ("REDIS", lambda: servers.shutil.which("redis-server"), servers.own_redis, redis_works),
    ],
)
def test_if_no_server_answers_one_is_started_and_stopped(
    name: str,
    installed: Callable[[], object],
    own: servers.Own,
    works: Callable[[str], None],
    unnamed: None,
) -> None:
    with servers.server(name, NOBODY, installed() is not None, own) as url:
        works(url)
    assert not servers.answers(url)


def test_a_server_that_answers_is_used_and_a_configured_one_must_answer(
    unnamed: None, monkeypatch: pytest.MonkeyPatch, postgres_server: str
) -> None:
    with servers.server("POSTGRES", postgres_server, True, servers.own_postgres) as url:
        assert url == postgres_server
    monkeypatch.setenv("SLACKWATER_TEST_POSTGRES", NOBODY)
    with (
        pytest.raises(pytest.fail.Exception, match="which SLACKWATER_TEST_POSTGRES names"),
        servers.server("POSTGRES", postgres_server, True, servers.own_postgres),
    ):
        pass


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_server_and_binary_the_tests_are_skipped_with_a_reason_and_ci_fails(
    ci: str, outcome: type[BaseException], unnamed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    with (
        pytest.raises(outcome, match=r"no redis answers .* or set SLACKWATER_TEST_REDIS"),
        servers.server("REDIS", NOBODY, False, servers.own_redis),
    ):
        pass
