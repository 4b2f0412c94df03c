"""URLs of servers for tests: a server that answers, or else an installed one that is started for this run.

If there is neither, the tests are skipped with a reason that says how to get one. With CI=true they fail.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from app.db import cluster
from app.processes import dies_with_parent, free_port, python_module
from testing.waiting import wait_for
from tests import needs, other_postgres

HOW = {
    "POSTGRES": "`docker run --detach --publish 127.0.0.1:5432:5432 --env POSTGRES_HOST_AUTH_METHOD=trust postgres:18`",
    "RABBITMQ": "`docker run --detach --publish 127.0.0.1:5672:5672 rabbitmq:4`",
    "REDIS": "`docker run --detach --publish 127.0.0.1:6379:6379 redis`",
    "S3": "`pip install 'moto[server,s3]'`",
}

Own = Callable[[Path], AbstractContextManager[str]]  # from an empty folder to the URL of a server in it


def answers(url: str) -> bool:
    """Whether a server listens there."""
    place = urlsplit(url)
    with suppress(OSError):
        socket.create_connection((place.hostname or "127.0.0.1", place.port or 0), timeout=2).close()
        return True
    return False


@contextmanager
def server(name: str, usual: str, installed: bool, own: Own) -> Iterator[str]:
    """The URL in SLACKWATER_TEST_<name>, else the usual one if a server answers there, else that of our own server."""
    variable = f"SLACKWATER_TEST_{name}"
    named = os.environ.get(variable, "")
    if named and not answers(named):
        pytest.fail(f"nothing answers at {named}, which {variable} names", pytrace=False)
    if named or answers(usual):
        yield named or usual
    elif installed:
        with tempfile.TemporaryDirectory(prefix="slackwater-tests-") as folder, own(Path(folder)) as url:
            yield url
    else:
        where = usual or "any place"
        needs.missing(f"no {name.lower()} answers at {where}, and none is installed: {HOW[name]}, or set {variable}")


@contextmanager
def running(
    command: list[str],
    ready: Callable[[], bool],
    folder: Path,
    *,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """A server process in its own process group. It is ready at the begin of the block and stopped at its end."""
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            user=user,
            start_new_session=True,
            preexec_fn=dies_with_parent(),  # noqa: PLW1509
        )
    try:

        def started() -> bool:
            assert process.poll() is None, f"{command[0]} does not start:\n{log.read_text()[-2000:]}"
            return ready()

        wait_for(started, f"{command[0]} is ready; see {log}")
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# ------------------------------------------------------------ our own ones


def _postgres_binaries() -> Path | None:
    if other_postgres.FOLDER:
        return cluster.programs(Path(other_postgres.FOLDER))
    found = shutil.which("postgres")
    packaged = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return Path(found).resolve().parent if found else packaged[-1] if packaged else None


@contextmanager
def own_postgres(folder: Path) -> Iterator[str]:
    """A fresh cluster that listens on TCP. PostgreSQL does not run as root."""
    binaries = _postgres_binaries()
    assert binaries
    user = "postgres" if os.geteuid() == 0 else None
    if user:
        shutil.chown(folder, user)
    data, port = folder / "data", free_port()
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    made = [binaries / "initdb", "--no-sync", "--auth=trust", "--username=postgres", f"--pgdata={data}"]
    subprocess.run(made, check=True, capture_output=True, user=user, cwd=folder)

    def ready() -> bool:
        with suppress(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=2).close()
            return True
        return False

    options = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""}
    command = [str(binaries / "postgres"), "-D", str(data), *(f"--{name}={value}" for name, value in options.items())]
    with running(command, ready, folder, user=user):
        yield url


def _rabbitmq_script() -> str | None:
    packaged = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one in PATH may be a wrapper that changes the user
    return packaged if Path(packaged).exists() else shutil.which("rabbitmq-server")


@contextmanager
def own_rabbitmq(folder: Path) -> Iterator[str]:
    """A node without plugins, with its own name, cookie and data."""
    script, port = _rabbitmq_script(), free_port()
    assert script
    (folder / "plugins").write_text("[].\n")
    variables = {
        "NODENAME": f"slackwater-test-{port}@localhost",
        "NODE_IP_ADDRESS": "127.0.0.1",
        "NODE_PORT": str(port),
        "DIST_PORT": str(free_port()),
        "MNESIA_BASE": str(folder / "mnesia"),
        "LOG_BASE": str(folder / "logs"),
        "PID_FILE": str(folder / "pid"),
        "CONFIG_FILE": str(folder / "rabbitmq"),
        "ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        # Schedulers that wait for work would take the processors from the tests.
        "SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
    }
    environment = {"HOME": str(folder)} | {f"RABBITMQ_{name}": value for name, value in variables.items()}
    url = f"amqp://guest:guest@127.0.0.1:{port}"
    with running([script], lambda: answers(url), folder, environment=environment):
        yield url


@contextmanager
def own_redis(folder: Path) -> Iterator[str]:
    """A Redis without persistence."""
    url = f"redis://127.0.0.1:{free_port()}/15"
    command = ["redis-server", "--bind", "127.0.0.1", "--port", str(urlsplit(url).port), "--save", ""]
    with running(command, lambda: answers(url), folder):
        yield url


@contextmanager
def own_s3(folder: Path) -> Iterator[str]:
    """An S3 of moto."""
    url = f"http://127.0.0.1:{free_port()}"
    command = python_module("moto.server", "-H", "127.0.0.1", "-p", str(urlsplit(url).port))
    with running(command, lambda: answers(url), folder):
        yield url


# ------------------------------------------------------------ fixtures


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """An external PostgreSQL, reached by TCP."""
    usual = "" if other_postgres.FOLDER else "postgresql://postgres@127.0.0.1:5432/postgres"
    with server("POSTGRES", usual, _postgres_binaries() is not None, own_postgres) as url:
        yield url


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[str]:
    """The URL of a RabbitMQ."""
    usual = "amqp://guest:guest@127.0.0.1:5672"
    with server("RABBITMQ", usual, _rabbitmq_script() is not None, own_rabbitmq) as url:
        yield url


@pytest.fixture(scope="session")
def redis_server() -> Iterator[str]:
    """The URL of a Redis, with a database for this run."""
    usual = "redis://127.0.0.1:6379/15"
    with server("REDIS", usual, shutil.which("redis-server") is not None, own_redis) as url:
        yield url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """An S3 that tests may write to."""
    installed = importlib.util.find_spec("moto") is not None
    with server("S3", "", installed, own_s3) as url:
        yield url
