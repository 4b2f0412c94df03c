"""Claims about the containers of the chart: each command runs here with the environment that the chart renders.

Each pod has an address of its own on the loopback interface, so ports are those of the chart. Only the addresses of the outside
world are replaced: the database, the folder of the store, and the server of the engine's image, which is a fake.
"""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.db import embedded
from app.environment import foreign_environment
from app.settings import Settings
from testing.waiting import wait_for
from tests.kubernetes.chart import Manifest, Manifests, Node, example, render
from tests.needs import unable
from tests.system.stack import ACCOUNT, MODEL, RUN

pytestmark = pytest.mark.slow

ITEMS = 20
ENGINE_PORT = 8000
TOKEN = "metrics-token-of-the-test"
ADDRESSES = {
    "api": 11,
    "steward": 12,
    "notifier": 13,
    "console": 14,
    "own": 15,
    "found-a": 16,
    "migrate-1": 17,
    "pods": 19,
    "maintenance": 21,
}
STRANGER = 18  # the pod of an engine that the chart attaches to
FOUND = 20  # and of one that it finds by DNS


def address(pod: str | int) -> str:
    number = ADDRESSES[pod] if isinstance(pod, str) else pod
    return f"127.87.0.{number}"


VALUES: dict[str, Any] = {
    "secrets": {"existing": "mine"},
    "store": {"url": "file:///objects", "claim": "objects", "accessMode": "ReadWriteMany"},
    "settings": {"WEBHOOK_ALLOW_PRIVATE": "loopback", "OBJECT_KB": 1},
    "metrics": {"token": True},
    "console": {"enabled": True, "url": "http://127.0.0.1:8701"},
    "engines": [
        {
            "name": "own",
            "image": "vllm/vllm-openai:v0.32.0",
            "args": ["--model", MODEL],
            "model": MODEL,
            "batchOnly": True,
            "scaling": {"enabled": True, "min": 0, "max": 3},
        }
    ],
    "attach": [
        {"name": "found", "engines": [{"name": "a", "url": f"http://{address(STRANGER)}:{ENGINE_PORT}"}]},
        {"name": "pods", "find": {"selector": {"app": "theirs"}, "ports": [ENGINE_PORT]}, "model": MODEL},
    ],
}


@dataclass
class Cluster:
    """The containers of the chart as processes here."""

    folder: Path
    secrets: dict[str, str]
    manifests: Manifests = field(default_factory=lambda: render(VALUES))
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment(self, name: str) -> dict[str, str]:
        """What the container gets, with the folders of its volumes here."""
        pod = name.split("/", maxsplit=1)[0]
        fields = {"metadata.name": f"slackwater-{pod}-0", "status.podIP": address(pod)}
        given = Node(self.secrets, fields).environment(self.manifests.container(name))
        here = {
            "0.0.0.0": address(pod),
            "/data": str(self.folder / pod),
            "file:///objects": (self.folder / "objects").as_uri(),
            f"dns://slackwater-pods.batch.svc:{ENGINE_PORT}": f"dns://{address(FOUND)}:{ENGINE_PORT}",
        }
        return {**foreign_environment(), **{name: here.get(value, value) for name, value in given.items()}}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start the command of a container; that of an engine's image is a fake engine."""
        pod, container = name.split("/")
        command = self.manifests.container(name).get("command")
        environment = self.environment(name)
        if container == "engine":
            command, environment = fake_engine(address(pod)), foreign_environment()
        (self.folder / pod).mkdir(parents=True, exist_ok=True)
        path = f"{Path(sys.executable).parent}:{environment['PATH']}"
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=self.folder / pod if container != "engine" else None,
                env=environment | {"PATH": path},
                stdout=log,
                stderr=log,
            )
        return self.processes[name]

    def run(self, name: str, *command: str) -> str:
        """The output of `kubectl exec`."""
        environment = self.environment(name)
        environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
        return subprocess.check_output(command, env=environment, text=True, timeout=30).strip()

    def probe(self, name: str, kind: str) -> bool:
        """Whether a probe of a container passes."""
        container = self.manifests.container(name)
        wanted = container[kind]["httpGet"]
        port = next(each["containerPort"] for each in container["ports"] if each["name"] == wanted["port"])
        try:
            answer = httpx.get(
                f"http://{address(name.split('/', maxsplit=1)[0])}:{port}{wanted['path']}", timeout=5, trust_env=False
            )
        except httpx.TransportError:
            return False
        return 200 <= answer.status_code < 400

    def demand(self) -> int:
        """What KEDA would read for the pool."""
        [scaled] = self.manifests.of("ScaledObject").values()
        [trigger] = scaled["spec"]["triggers"]
        asked = urlsplit(trigger["metadata"]["url"])
        assert asked.hostname == "slackwater-api.batch.svc"
        [given] = self.manifests.of("TriggerAuthentication")[
            trigger["authenticationRef"]["name"].removeprefix("slackwater-")
        ]["spec"]["secretTargetRef"]
        headers = {"authorization": f"Bearer {self.secrets[given['key']]}"}
        there = asked._replace(netloc=f"{address('api')}:{asked.port}").geturl()
        answer = httpx.get(there, headers=headers, trust_env=False)
        assert answer.status_code == 200, answer.text
        value: int = answer.json()[trigger["metadata"]["valueLocation"]]
        return value

    def log(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '.')}.log"

    def close(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is None:
                process.kill()
                process.wait()
            print(f"── {name}: {shlex.join(map(str, process.args))}\n{self.log(name).read_text()[-2000:]}")


def fake_engine(host: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "testing.fakes.engine",
        "--host",
        host,
        "--port",
        str(ENGINE_PORT),
        "--latency",
        "0.02",
    ]


def pods_of(manifests: Manifests) -> dict[str, Manifest]:
    return {name: pod for name, pod in manifests.pods() if not name.startswith("migrate")}


@pytest.fixture
def cluster(tmp_path: Path, server_settings: Settings, administer: Callable[[str], None]) -> Iterator[Cluster]:
    """Every container of the chart, on an empty database."""
    if sys.platform != "linux":
        unable("it takes all of 127.0.0.0/8")
    administer("create database kubernetes")
    url = embedded.database_url(server_settings).replace("/postgres?", "/kubernetes?")
    secret = "a-secret-key-of-at-least-32-bytes-for-the-chart"
    cluster = Cluster(tmp_path, {"database-url": url, "secret-key": secret, "metrics-token": TOKEN})
    strangers = [subprocess.Popen(fake_engine(address(each))) for each in (STRANGER, FOUND)]
    try:
        assert cluster.start("migrate-1/migrate").wait(60) == 0
        for pod, template in pods_of(cluster.manifests).items():
            for container in template["spec"]["containers"]:
                cluster.start(f"{pod}/{container['name']}")
        yield cluster
    finally:
        cluster.close()
        for stranger in strangers:
            stranger.kill()
            stranger.wait()
        administer("drop database kubernetes with (force)")


def test_every_command_starts_with_its_environment_probes_pass_and_a_batch_runs_on_every_kind_of_engine(
    cluster: Cluster,
) -> None:
    for name, container in cluster.manifests.containers():
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            if kind in container:
                wait_for(lambda name=name, kind=kind: cluster.probe(name, kind), f"{kind} of {name}")
    cluster.run("api/api", "slackwater", "account", "create", ACCOUNT)
    key = cluster.run("api/api", "slackwater", "key", "create", "--account", ACCOUNT).split()[-1]
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"http://{address('api')}:8700", headers=headers, timeout=20, trust_env=False) as client:
        wait_for(
            lambda: ready(client) == {"slackwater-own-0", "found-a", f"{address(FOUND)}-0"}, "all engines are ready"
        )
        assert cluster.demand() == 0
        items = [{"prompt": f"item {n}", "external_reference": str(n)} for n in range(ITEMS)]
        submitted = client.post(RUN, params={"queueRequest": "true"}, json={"requests": items})
        assert submitted.status_code == 200, submitted.text
        result = wait_for(lambda: polled(client, submitted.json()["result"]["request_id"]), "the batch is done")
        assert [each["external_reference"] for each in result["responses"]] == [str(n) for n in range(ITEMS)]
        assert all(each["success"] for each in result["responses"])
        said = client.post(RUN, json={"prompt": "now"})
        assert said.status_code == 200, said.text  # the gateway reaches an engine at its pod's address
    assert stopped(cluster) == dict.fromkeys(cluster.processes, 0)


def test_a_worker_for_engines_that_it_cannot_find_ends_instead_of_starting_one_of_its_own(
    tmp_path: Path, database_url: str
) -> None:
    manifests = render(example("llm-d"))
    secrets = {"database-url": database_url, "secret-key": "a-secret-key-of-at-least-32-bytes-for-the-chart"}
    fields = {"metadata.name": "decode", "status.podIP": address(STRANGER)}
    given = Node(secrets, fields).environment(manifests.container("decode/gpu-worker"))
    models = tmp_path / "models.toml"
    models.write_text(example("llm-d")["models"])
    here = {"/data": str(tmp_path), "0.0.0.0": address(STRANGER), "/etc/slackwater/models.toml": str(models)}
    environment = {**foreign_environment(), **{name: here.get(value, value) for name, value in given.items()}}
    environment["SLACKWATER_STORAGE_URL"] = (tmp_path / "objects").as_uri()
    command = [sys.executable, "-m", "workers.gpu"]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1, done.stderr
    assert "slackwater-decode.batch.svc:8000,8001 finds no engine" in done.stdout + done.stderr
    assert "the selector of that Service must match their pods" in done.stdout + done.stderr


def ready(client: httpx.Client) -> set[str]:
    return {each["name"] for each in client.get("/status").json()["engines"] if each["state"] == "ready"}


def polled(client: httpx.Client, request_id: str) -> dict[str, Any] | None:
    answer = client.post(RUN, json={"request_id": request_id})
    result: dict[str, Any] = answer.json()["result"] if answer.status_code == 200 else {"status": "queued"}
    return None if result.get("status") in ("queued", "running") else result


def stopped(cluster: Cluster) -> dict[str, int]:
    """Send SIGTERM to each container as a kubelet does, engines after their pause. Returns the exit codes of our parts.

    Each has ended within the grace of its pod.
    """
    codes: dict[str, int] = {}
    pods = dict(cluster.manifests.pods())
    ours = {name: each for name, each in cluster.processes.items() if not name.endswith("/engine")}
    began = time.monotonic()
    for process in ours.values():
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for name, process in ours.items():
        grace = pods[name.split("/")[0]]["spec"].get("terminationGracePeriodSeconds", 30)
        codes[name] = process.wait(max(0.1, began + grace - time.monotonic()))
    for name, process in cluster.processes.items():
        if name not in ours:
            assert process.poll() is None, f"{name} ended before its worker"
            codes[name] = 0
    return codes
