"""Fixtures for tests with external services: an empty database, a broker without our queues."""

from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from app.db import migrate
from tests.ran_on import met


@pytest.fixture
def empty_postgres_url(postgres_server: str) -> Iterator[str]:
    """A new, empty database on an external server, by TCP."""
    name = f"slackwater_test_{uuid4().hex[:10]}"
    with psycopg.connect(postgres_server, autocommit=True) as conn:
        version = str(conn.info.parameter_status("server_version")).split()[0]
        met(f"PostgreSQL {version}, external")
        conn.execute(f"create database {name}".encode())
        try:
            yield urlsplit(postgres_server)._replace(path=f"/{name}").geturl()
        finally:
            conn.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def external_postgres_url(empty_postgres_url: str) -> str:
    """A new, migrated database on an external server."""
    migrate.upgrade(empty_postgres_url)
    return empty_postgres_url


@pytest.fixture
def rabbitmq_url(rabbitmq_server: str) -> Iterator[str]:
    """A RabbitMQ server without our queues. Prints its version."""
    import kombu

    from app.tasks import names

    def clean() -> None:
        with kombu.Connection(rabbitmq_server) as connection:
            connection.default_channel.queue_delete(names.WEBHOOKS)

    clean()
    with kombu.Connection(rabbitmq_server) as connection:
        connection.ensure_connection(max_retries=1)
        met(f"RabbitMQ {connection.connection.server_properties['version']}")
    yield rabbitmq_server
    clean()


@pytest.fixture
def redis_url(redis_server: str) -> Iterator[str]:
    """An empty Redis database."""
    import redis

    with redis.Redis.from_url(redis_server) as client:
        met(f"Redis {client.info('server')['redis_version']}")
        client.flushdb()
        yield redis_server
        client.flushdb()
