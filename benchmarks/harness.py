"""What benchmarks run on: one PostgreSQL server, a fresh database for each arm, Slackwater's processes, worker processes."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import psycopg

from app import processes
from app.cli.key import create_key
from app.db import embedded, migrate
from app.db.pool import Database
from app.environment import child_environment, foreign_environment
from app.queue import partitions
from app.settings import Settings
from app.tenants.key_scope import EVERYTHING
from testing import clusters
from testing.waiting import wait_for

ACCOUNT = "bench"
MODEL = "smollm2-135m-instruct"
RUN = f"/client/v4/accounts/{ACCOUNT}/ai/run/{MODEL}"
SECRET = "a-secret-key-for-benchmarks-of-32-bytes"
ROOT = Path(__file__).parent.parent


def say(line: str) -> None:
    """Print progress to stderr, after the load average."""
    print(f"[{os.getloadavg()[0]:5.2f}] {line}", file=sys.stderr, flush=True)


@dataclass
class Testbed:
    """One PostgreSQL server and a temporary folder."""

    folder: Path
    admin_url: str
    _made: int = 0
    _left: list[str] = field(default_factory=list)

    def database(self, template: bool = True) -> str:
        """The URL of a fresh database. With `template`, it is migrated and has partitions."""
        self._made += 1
        name = f"slackwater_bench_{os.getpid()}_{self._made}"
        with psycopg.connect(self.admin_url, autocommit=True) as conn:
            conn.execute(f'create database "{name}"'.encode())
        self._left.append(name)
        url = urlsplit(self.admin_url)._replace(path=f"/{name}").geturl()
        if template:
            migrate.upgrade(url)
            with_partitions(url)
        return url

    def settings(self, url: str, **changes: Any) -> Settings:
        """Settings of one arm. Each database has an object store of its own, as two installations must."""
        values: dict[str, Any] = {"data_dir": self.folder / "data", "database_url": url, "secret_key": SECRET}
        values["storage_url"] = (self.folder / "objects" / urlsplit(url).path.strip("/")).as_uri()
        return Settings(**values, port=processes.free_port(), log_level="warning", **changes)

    def clear(self) -> None:
        """Drop all databases made so far. Call it after each arm, so that autovacuum adds no WAL to the next one."""
        with psycopg.connect(self.admin_url, autocommit=True) as conn:
            while self._left:
                conn.execute(f'drop database if exists "{self._left.pop()}" with (force)'.encode())


def with_partitions(url: str) -> None:
    """Make today's partitions, as `slackwater up` does."""
    import asyncio

    async def make() -> None:
        async with Database(url, size=1) as database, database.transaction() as conn:
            await partitions.create(conn, 1)

    asyncio.run(make())


@contextlib.contextmanager
def open_testbed(database_url: str) -> Iterator[Testbed]:
    """A testbed on the server at `database_url`, or on an embedded one. Everything it creates is removed at the end."""
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="slackwater-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # the embedded server runs as a user of its own
        if not database_url:
            settings = Settings(data_dir=folder / "server", database_url="")
            stack.callback(clusters.remove, settings.data_dir)
            stack.callback(embedded.stop, settings, "immediate")
            database_url = embedded.start(settings)
        made = Testbed(folder, database_url)
        stack.callback(made.clear)
        yield made


# ---------------------------------------------------------------- processes


def start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own; its output is added to `log`. It ends with this process."""
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=ROOT,
            start_new_session=True,
            preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
        )


@contextlib.contextmanager
def part(settings: Settings, module: str) -> Iterator[subprocess.Popen[bytes]]:
    """One process of Slackwater, started as the supervisor starts it. If it exits early, its output is shown."""
    log = settings.data_dir / f"{module}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    process = start([sys.executable, "-m", module], child_environment(settings, {}), log)
    try:
        yield process
    finally:
        early = process.poll() is not None
        end(process)
        if early:  # even if its absence has failed the arm already
            raise SystemExit(f"{module} ended by itself:\n{log.read_text()[-3000:]}")


def end(process: subprocess.Popen[Any]) -> None:
    """Send SIGTERM to the process group, and SIGKILL after 15 seconds."""
    processes.signal_group(process.pid, signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        processes.signal_group(process.pid, signal.SIGKILL)
        process.wait()


def cpu_seconds(pid: int, *, of_ended_children: bool = False) -> float:
    """Processor time of a process and its threads so far, and with `of_ended_children` of those processes, too."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, fields[11 : 15 if of_ended_children else 13]))
    return ticks / os.sysconf("SC_CLK_TCK")


_IDLE_SECONDS = 2.0  # the server closes a connection that it has not used for five


class Api:
    """A client of the API on one connection. It takes less CPU than httpx, because it shares the machine with the server."""

    def __init__(self, settings: Settings, key: str) -> None:
        self._address = (settings.host, settings.port)
        self._connection = HTTPConnection(*self._address, timeout=120)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._used_at = 0.0

    def submit_lines(self, body: Any, size: int) -> str:
        """The request id of an NDJSON batch; `body` is bytes or an iterable of bytes."""
        headers = {"Content-Type": "application/x-ndjson", "Content-Length": str(size)}
        return str(self._post(f"{RUN}?queueRequest=true", body, headers)["request_id"])

    def submit(self, items: Sequence[Mapping[str, object]]) -> str:
        """The request id of a JSON batch."""
        return str(self._post(f"{RUN}?queueRequest=true", json.dumps({"requests": items}).encode(), {})["request_id"])

    def poll(self, request_id: str) -> dict[str, Any]:
        """The status of the batch."""
        return self._post(RUN, json.dumps({"request_id": request_id}).encode(), {})

    def _post(self, path: str, body: Any, headers: Mapping[str, str]) -> dict[str, Any]:
        if monotonic() - self._used_at > _IDLE_SECONDS:
            self._connection.close()  # it opens itself again
        self._connection.request("POST", path, body, {**self._headers, **headers})
        answer = self._connection.getresponse()
        content = answer.read()
        self._used_at = monotonic()
        if answer.status >= 300:
            raise SystemExit(f"POST {path}: {answer.status} {content[:500]!r}")
        result: dict[str, Any] = json.loads(content)["result"]
        return result


def until_ready(settings: Settings) -> None:
    """Return when the API answers."""
    until_healthy(f"http://{settings.host}:{settings.port}/ready")


def until_healthy(url: str, process: "subprocess.Popen[Any] | None" = None) -> None:
    """Return when the URL answers with 200. Raises SystemExit if the process ends before."""

    def healthy() -> bool:
        if process is not None and process.poll() is not None:
            raise SystemExit(f"the process of {url} ended by itself")
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)

    wait_for(healthy, url)


def until_engines_ready(database_url: str, engines: int = 1) -> None:
    """Return when so many engines are ready, and their workers can be woken."""
    asked = "select count(*) from engine where state = 'ready' and arrival_url is not null"
    with psycopg.connect(database_url, autocommit=True) as conn:
        wait_for(lambda: conn.execute(asked).fetchone() == (engines,), f"{engines} ready engines")


@contextlib.contextmanager
def api(settings: Settings) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A running API process and a key for it."""
    with part(settings, "app.api") as process:
        until_ready(settings)
        yield process, create_key(settings, ACCOUNT, "benchmark", 1, scope=EVERYTHING)


# ---------------------------------------------------------------- workers that start together


class WorkerProcesses:
    """Processes that print `ready`, wait for `go` on stdin, work, and print one JSON object."""

    def __init__(self, commands: Sequence[Sequence[str]]) -> None:
        self._processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=foreign_environment() | {"PYTHONWARNINGS": "ignore"},
                start_new_session=True,
                preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
            )
            for command in commands
        ]

    def __enter__(self) -> "WorkerProcesses":
        for process in self._processes:
            assert process.stdout
            if process.stdout.readline().strip() != "ready":
                self.__exit__()
                raise SystemExit("a worker process did not become ready")
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes:
            end(process)

    def go(self) -> float:
        """Start the work. Returns the time, on the clock that all processes share."""
        began = monotonic()
        for process in self._processes:
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        return began

    def reports(self) -> list[dict[str, Any]]:
        """The final report of each process."""
        found = []
        for process in self._processes:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                raise SystemExit("a worker process ended without a report")
            found.append(json.loads(line))
        return found

    def race(self) -> tuple[float, list[dict[str, Any]]]:
        """Seconds from the start to the last `end` that a worker reports, and all reports."""
        began = self.go()
        found = self.reports()
        return max(report["end"] for report in found) - began, found
