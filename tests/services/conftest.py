"""Optional services: where one does not answer its tests are skipped, saying how to start it; CI=true makes it fail."""

import os
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from app.db import migrate
from tests.timing import note

POSTGRES = os.environ.get("SLACKWATER_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
RABBITMQ = os.environ.get("SLACKWATER_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672")
REDIS = os.environ.get("SLACKWATER_TEST_REDIS", "redis://127.0.0.1:6379/15")
START = {
    "postgres": "`docker run --detach --publish 127.0.0.1:5432:5432 --env POSTGRES_HOST_AUTH_METHOD=trust postgres:18`, "
    "or set SLACKWATER_TEST_POSTGRES",
    "rabbitmq": "`docker run --detach --publish 127.0.0.1:5672:5672 rabbitmq:4`, or set SLACKWATER_TEST_RABBITMQ",
    "redis": "`docker run --detach --publish 127.0.0.1:6379:6379 redis`, or set SLACKWATER_TEST_REDIS",
}


def require(url: str, name: str, how: str) -> str:
    """`url`, if something listens there. Otherwise the test is skipped, or fails under CI=true."""
    place = urlsplit(url)
    try:
        socket.create_connection((place.hostname or "127.0.0.1", place.port or 0), timeout=2).close()
    except OSError as error:
        message = f"{name} does not answer at {place.hostname}:{place.port} ({error}). Start it: {how}"
        if os.environ.get("CI") == "true":
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    return url


@pytest.fixture
def empty_postgres_url() -> Iterator[str]:
    """A fresh, empty database on an external server, reached by TCP."""
    admin = require(POSTGRES, "PostgreSQL", START["postgres"])
    name = f"slackwater_test_{uuid4().hex[:10]}"
    with psycopg.connect(admin, autocommit=True) as conn:
        note(f"external PostgreSQL {conn.info.parameter_status('server_version')}")
        conn.execute(f"create database {name}".encode())
        try:
            yield urlsplit(admin)._replace(path=f"/{name}").geturl()
        finally:
            conn.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def external_postgres_url(empty_postgres_url: str) -> str:
    """A fresh, migrated database on an external server."""
    migrate.upgrade(empty_postgres_url)
    return empty_postgres_url


@pytest.fixture
def rabbitmq_url() -> Iterator[str]:
    """A RabbitMQ without our queues; its version is printed."""
    import kombu

    from app.tasks import names

    url = require(RABBITMQ, "RabbitMQ", START["rabbitmq"])

    def clean() -> None:
        with kombu.Connection(url) as connection:
            for queue in names.QUEUES:
                connection.default_channel.queue_delete(queue)

    clean()
    with kombu.Connection(url) as connection:
        connection.ensure_connection(max_retries=1)
        note(f"RabbitMQ {connection.connection.server_properties['version']}")
    yield url
    clean()


@pytest.fixture
def redis_url() -> Iterator[str]:
    """An empty Redis database."""
    import redis

    url = require(REDIS, "Redis", START["redis"])
    with redis.Redis.from_url(url) as client:
        note(f"Redis {client.info('server')['redis_version']}")
        client.flushdb()
        yield url
        client.flushdb()
