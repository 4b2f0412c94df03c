"""Claims about docker-compose.yml: the command of each service runs here with the environment of the service.

Only what names a place is replaced: hosts, ports, passwords, folders, the engine, and that a loopback receiver is allowed.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from openai import OpenAI

from app.environment import foreign_environment
from app.processes import free_port
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.clients.batches import created, ended, line, lines_of, uploaded
from tests.services.compose import PASSWORDS, drop_roles, give_passwords, services
from tests.system.stack import ACCOUNT, Stack
from tests.webhooks.support import receiving

pytestmark = pytest.mark.slow

OURS = ["migrate", "api", "console", "steward", "maintenance", "notifier", "gpu-worker"]
LONG_RUNNING = OURS[1:]
ITEMS = 20


def at(url: str, place: str) -> str:
    """`url` with the host, port and password of `place`, and with its database if it has one."""
    there = urlsplit(place)
    here = urlsplit(url)
    return here._replace(netloc=there.netloc, path=there.path or here.path).geturl()


def database_at(url: str, place: str) -> str:
    """`url` on the server and database of `place`, under its own role and password; the owner is that of `place`."""
    there, here = urlsplit(place), urlsplit(url)
    who = there.netloc.rpartition("@")[0] if here.username == "slackwater" else f"{here.username}:{here.password}"
    return there._replace(netloc=f"{who}@{there.hostname}:{there.port}").geturl()


@dataclass
class Places:
    """The addresses of the services on this machine."""

    folder: Path
    postgres: str
    rabbitmq: str
    engine: str
    port: int

    def storage(self, service: str, url: str, volumes: list[str]) -> str:
        """The store of a service: in a folder for each volume, or in one of its own where it mounts none at that place."""
        place = PurePosixPath(urlsplit(url).path)
        for name, target in (volume.split(":")[:2] for volume in volumes):
            if place.is_relative_to(target):
                return (self.folder / name / place.relative_to(target)).as_uri()
        return (self.folder / service / "unmounted").as_uri()

    def environment(self, service: str, values: dict[str, str], volumes: list[str]) -> dict[str, str]:
        """The environment of a service with its places replaced. A variable that the file lacks stays missing."""
        local = {
            "SLACKWATER_DATABASE_URL": database_at(values["SLACKWATER_DATABASE_URL"], self.postgres),
            "SLACKWATER_BROKER_URL": at(values.get("SLACKWATER_BROKER_URL", ""), self.rabbitmq),
            "SLACKWATER_DATA_DIR": str(self.folder / service / "data"),
            "SLACKWATER_STORAGE_URL": self.storage(service, values.get("SLACKWATER_STORAGE_URL", ""), volumes),
            "SLACKWATER_HOST": "127.0.0.1",
            "SLACKWATER_PORT": str(self.port),
            "SLACKWATER_URL": f"http://127.0.0.1:{self.port}",
            "SLACKWATER_CONSOLE_HOST": "127.0.0.1",
            "SLACKWATER_CONSOLE_PORT": str(free_port()),
        }
        placed = {name: local.get(name, value) for name, value in values.items()}
        development = {"SLACKWATER_WEBHOOK_ALLOW_PRIVATE": "true", "SLACKWATER_ENGINE_URL": self.engine}
        development["SLACKWATER_OBJECT_KB"] = "1"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**foreign_environment(), **placed, **development, "PATH": path}


@dataclass
class Compose:
    """The services of the file as processes here."""

    places: Places
    services: dict[str, Any] = field(default_factory=services)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start the command of a service in its own folder, as in a container."""
        folder = self.places.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                self.services[name]["command"], cwd=folder, env=self.environment(name), stdout=log, stderr=log
            )
        self.processes[name] = process
        return process

    def run(self, name: str, *command: str) -> str:
        """The output of `docker compose exec NAME COMMAND`, or of `run`."""
        output = subprocess.check_output(
            command, env=self.environment(name), stderr=subprocess.STDOUT, text=True, timeout=LIMIT_SECONDS
        )
        return output.strip()

    def healthy(self, name: str) -> bool:
        """Run the health check of the service, at its port on this machine."""
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        here = [part.replace(":8700", f":{self.places.port}") for part in command]
        return subprocess.call(here, env=self.environment(name), stderr=subprocess.DEVNULL, timeout=LIMIT_SECONDS) == 0

    def stop(self) -> dict[str, int]:
        """Send SIGTERM to every running service. Returns their exit codes within the grace period of the file."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        return {name: process.wait(self.grace(name)) for name, process in self.processes.items()}

    def grace(self, name: str) -> float:
        """Seconds after SIGTERM until compose would kill the service."""
        return float(self.services[name].get("stop_grace_period", "10s").removesuffix("s"))

    def environment(self, name: str) -> dict[str, str]:
        """The environment that a service gets here."""
        service = self.services[name]
        return self.places.environment(name, service["environment"], service.get("volumes", []))

    def log(self, name: str) -> Path:
        """The file with the output of a service."""
        return self.places.folder / f"{name}.log"

    def close(self) -> None:
        """Kill all services that still run, and print the logs."""
        for name, process in self.processes.items():
            if process.poll() is None:
                process.kill()
                process.wait()
            print(f"── {name}: {shlex.join(self.services[name]['command'])}\n{self.log(name).read_text()[-3000:]}")


@contextmanager
def composed(places: Places) -> Iterator[Compose]:
    """The migrated database and every long-running service, started."""
    compose = Compose(places)
    try:
        assert compose.start("migrate").wait(LIMIT_SECONDS) == 0
        for name in LONG_RUNNING:
            compose.start(name)
        wait_for(lambda: compose.healthy("api"), "the api's health check passes")
        yield compose
    finally:
        compose.close()


def test_the_file_has_our_services_and_only_settings_that_exist() -> None:
    found = {name: service for name, service in services().items() if "build" in service}
    assert sorted(found) == sorted(OURS)
    for name, service in found.items():
        own = {
            variable: v for variable, v in service["environment"].items() if variable != "OTEL_EXPORTER_OTLP_ENDPOINT"
        }
        values = {variable.removeprefix("SLACKWATER_").lower(): v for variable, v in own.items()}
        unknown = values.keys() - Settings.model_fields
        assert not unknown, f"{name} sets {unknown}, which no setting reads"
        assert {"database_url", "secret_key"} <= values.keys(), name
        Settings.model_validate(values)
        awaited = service["depends_on"]
        assert "postgres" in awaited if name == "migrate" else "migrate" in awaited, name


def test_a_service_that_does_not_mount_the_shared_volume_has_a_store_of_its_own_here(tmp_path: Path) -> None:
    """Else the tests below would pass whatever the file mounts."""
    compose = Compose(Places(tmp_path, "postgresql://o@x:1/d", "amqp://x", "http://x", 1))
    stores = {name: compose.environment(name)["SLACKWATER_STORAGE_URL"] for name in OURS}
    assert set(stores.values()) == {(tmp_path / "objects").as_uri()}
    compose.services["steward"]["volumes"] = ["models:/data"]
    assert compose.environment("steward")["SLACKWATER_STORAGE_URL"] not in stores.values()


@pytest.fixture
def installed(tmp_path: Path, empty_postgres_url: str, rabbitmq_url: str) -> Iterator[tuple[Stack, Compose, str]]:
    """An engine, the services of the file, and a key of the account."""
    stack = Stack(tmp_path)
    try:
        stack.start_engine()
        engine = f"http://127.0.0.1:{stack.engine_port}"
        give_passwords(empty_postgres_url, PASSWORDS)
        with composed(Places(tmp_path, empty_postgres_url, rabbitmq_url, engine, stack.settings.port)) as compose:
            compose.run("migrate", "slackwater", "account", "create", ACCOUNT)
            yield (
                stack,
                compose,
                compose.run("migrate", "slackwater", "key", "create", "--account", ACCOUNT, "--role", "admin"),
            )
    finally:
        stack.close()
        drop_roles(empty_postgres_url)


def test_a_link_to_the_console_is_made_by_the_owner_and_no_part_sees_what_is_not_its_own(
    installed: tuple[Stack, Compose, str],
) -> None:
    _, compose, _ = installed
    assert "http://127.0.0.1:8701/console/login" in compose.run("migrate", "slackwater", "console", "login")
    for part in ("gpu-worker", "maintenance", "notifier", "steward"):
        url = compose.environment(part)["SLACKWATER_DATABASE_URL"]
        with psycopg.connect(url) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select * from console_login")
    assert "SLACKWATER_BROKER_URL" not in compose.environment("api")


def test_a_batch_runs_and_its_webhook_arrives_over_external_postgresql_and_rabbitmq(
    installed: tuple[Stack, Compose, str],
) -> None:
    stack, compose, key = installed
    stack.client.headers["authorization"] = f"Bearer {key}"
    with receiving() as receiver:
        secret = stack.subscribe(receiver.url)
        request_id = stack.submit([{"prompt": f"item {n}", "external_reference": str(n)} for n in range(ITEMS)])
        result = wait_for(lambda: stack.poll(request_id), "the batch is done")

        def kinds() -> set[str]:
            events = [request.verified(secret) for request in list(receiver.requests)]
            return {event["type"] for event in events if event["payload"].get("requestId") == request_id}

        expected = {"cf.workersAi.model.batch.queued", "cf.workersAi.model.batch.succeeded"}
        wait_for(lambda: kinds() == expected, "both webhooks have arrived")
        codes = compose.stop()
    assert [response["external_reference"] for response in result["responses"]] == [str(n) for n in range(ITEMS)]
    assert all(response["success"] for response in result["responses"])
    assert codes == dict.fromkeys(OURS, 0)


def test_a_file_and_large_items_are_the_same_for_every_service_though_each_has_a_data_directory_of_its_own(
    tmp_path: Path, installed: tuple[Stack, Compose, str], empty_postgres_url: str
) -> None:
    stack, compose, key = installed
    with OpenAI(api_key=key, base_url=f"http://127.0.0.1:{stack.settings.port}/v1") as client:
        texts = ["short", "long " * 500]  # the second one lies in the store, and so does its answer
        file_id = uploaded(client, *(line(n, text) for n, text in enumerate(texts)))
        batch = ended(client, created(client, file_id))
        assert batch.status == "completed", batch
        said = [
            each["response"]["body"]["choices"][0]["message"]["content"]
            for each in lines_of(client, batch.output_file_id)
        ]
    assert said == [f"echo: {text}" for text in texts]
    with psycopg.connect(empty_postgres_url, autocommit=True) as conn:
        conn.execute("update file set expires_at = now()")
        conn.execute("update duty set due_at = now(), asked_at = null where name = 'objects'")
        wait_for(lambda: not conn.execute("select 1 from file").fetchone(), "the file has gone")
    assert list((tmp_path / "objects" / "file").glob("*/*")) == []
    alone = compose.environment("steward") | {"SLACKWATER_STORAGE_URL": (tmp_path / "alone").as_uri()}
    refused = subprocess.run(
        ["slackwater", "steward"], env=alone, check=False, capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert refused.returncode == 1
    assert "is not the one that the other parts use" in refused.stderr
    assert "SLACKWATER_STORAGE_URL" in refused.stderr
