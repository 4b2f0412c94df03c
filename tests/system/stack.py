"""A whole installation as a user runs it: a real `slackwater up --attach` on a fake engine, used from outside.

Most tests use the one of their process (tests/installation.py). What needs its own settings or kills something starts its own
with `running`, and is counted (tests/sets.py).
"""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psycopg

from app import processes
from app.cli.key import create_key
from app.cli.leftovers import MARK
from app.db import embedded
from app.environment import PART, child_environment
from app.settings import DEMO_MODELS, Settings
from app.tenants.key_scope import EVERYTHING
from testing import clusters
from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests import sets

ACCOUNT = "acme"
MODEL = "smollm2-135m-instruct"
USUAL_UMASK = 0o022
RUN = f"/client/v4/accounts/{ACCOUNT}/ai/run/{MODEL}"


def open_to_others(folder: Path) -> list[str]:
    """What group or others may do anything with, of the folder and all that is in it; links have no modes of their own."""
    found = [each for each in (folder, *folder.rglob("*")) if not each.is_symlink()]
    return [f"{each} {stat.filemode(mode)}" for each in found if (mode := each.lstat().st_mode) & 0o077]


class Account:
    """An account with its key, as somebody outside the installation uses it."""

    name: str
    key: str
    client: httpx.Client

    def __init__(self, url: str, name: str, key: str) -> None:
        self.name, self.key = name, key
        self.client = httpx.Client(
            base_url=url,
            timeout=LIMIT_SECONDS,
            trust_env=False,
            headers={"authorization": f"Bearer {key}"},
            limits=httpx.Limits(
                keepalive_expiry=2
            ),  # the server closes after five idle seconds, as httpx by itself does
        )

    @property
    def url(self) -> str:
        """Where the API listens, without a path."""
        return str(self.client.base_url).rstrip("/")

    @property
    def path(self) -> str:
        """Of what Workers AI calls the account."""
        return f"/client/v4/accounts/{self.name}"

    def run(self, model: str = MODEL) -> str:
        """The path of a model's requests and batches."""
        return f"{self.path}/ai/run/{model}"

    def submit(self, items: list[dict[str, Any]]) -> str:
        """The request id of a new batch."""
        answer = self.client.post(self.run(), params={"queueRequest": "true"}, json={"requests": items})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["result"]["request_id"])

    def poll(self, request_id: str) -> dict[str, Any] | None:
        """The final result, or None while there is none."""
        answer = self.client.post(self.run(), json={"request_id": request_id})
        if answer.status_code == 503:
            return None
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return None if result.get("status") in ("queued", "running") else result

    def subscribe(self, url: str) -> str:
        """The signing secret of a new webhook for all events."""
        body = {
            "name": "test",
            "source": {"type": "workersAi.model"},
            "destination": {"type": "webhook", "url": url},
            "events": ["batch.queued", "batch.succeeded", "batch.failed"],
        }
        answer = self.client.post(f"{self.path}/event_subscriptions/subscriptions", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["result"]["destination"]["secret"])


class Stack(Account):
    """One running installation, and its first account."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        usual: dict[str, Any] = {
            "models_file": DEMO_MODELS,
            "lease_seconds": 2,
            "heartbeat_seconds": 0.4,
            "steward_seconds": 0.1,
            "webhook_sweep_seconds": 0.5,
            "webhook_allow_private": "loopback",
            "worker_metrics_port": 0,
            "notifier_metrics_port": 0,
            "maintenance_metrics_port": 0,
            "steward_metrics_port": 0,
            "console_port": 0,
            "port": processes.free_port(),
        }
        self.settings = Settings(
            data_dir=folder / "data",
            secret_key="test-secret-key-of-at-least-32-bytes!",
            **usual | changes,
        )
        self.log = folder / "up.log"
        self.engine_port = processes.free_port()
        self.engine: subprocess.Popen[bytes] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        super().__init__(f"http://127.0.0.1:{self.settings.port}", ACCOUNT, "none")

    def account(self, name: str) -> Account:
        """A new account, with a key."""
        with ThreadPoolExecutor(1) as apart:  # a browser may keep an event loop in this thread
            key = apart.submit(create_key, self.settings, name, "test", 1, scope=EVERYTHING).result()
        return Account(self.url, name, key)

    def script(self, *rules: dict[str, Any]) -> None:
        """What the fake engine does with which prompts, instead of what it was told before."""
        self._of_engine("_script", json.dumps(rules).encode())

    def _of_engine(self, path: str, data: bytes | None = None) -> Any:
        """The fake engine's answer at a path of its own."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.engine_port}/{path}", data) as answer:
            return json.load(answer)

    def start_engine(self, latency: float = 0.05) -> None:
        """A fake engine in a process of its own."""
        command = [
            sys.executable,
            "-m",
            "testing.fakes.engine",
            "--port",
            str(self.engine_port),
            "--latency",
            str(latency),
        ]
        self.engine = subprocess.Popen(command)
        wait_for(lambda: urllib.request.urlopen(f"http://127.0.0.1:{self.engine_port}/health").status == 200)

    def start(self) -> None:
        """`slackwater up`, attached to the fake engine if there is one, until the API answers."""
        command = [sys.executable, "-m", "app.cli.main", "up", "--verbose"]
        if self.engine:
            command += ["--attach", f"http://127.0.0.1:{self.engine_port}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=child_environment(self.settings, {}), stdout=log, stderr=log, umask=USUAL_UMASK
            )
        wait_for(
            lambda: self.client.get("/ready").status_code == 200, f"API up; see {self.log}", seconds=LOADING_SECONDS
        )
        self.key = create_key(self.settings, self.name, "test", 1, scope=EVERYTHING)
        self.client.headers["authorization"] = f"Bearer {self.key}"

    def stop(self) -> int:
        """Send SIGTERM to `slackwater up`. Returns its exit code."""
        assert self.process
        self.process.terminate()
        return self.process.wait(LIMIT_SECONDS)

    def close(self) -> None:
        """End every process, in whatever state it is."""
        for process in (self.process, self.engine):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        processes.kill(self.marked())
        with contextlib.suppress(Exception):
            embedded.stop(self.settings, "immediate")
        clusters.remove(self.settings.data_dir)

    def marked(self) -> list[int]:
        """Every process of this installation below the supervisor."""
        return processes.marked(MARK, str(self.settings.data_dir.resolve()))

    def pids(self, part: str) -> list[int]:
        """Processes of one part."""
        return [pid for pid in self.marked() if pid in processes.marked(PART, part)]

    def kill(self, part: str) -> None:
        """Send SIGKILL to one part, and wait until the supervisor has restarted it."""
        old = self.pids(part)
        assert old, f"{part} is not running"
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: set(self.pids(part)) - set(old), f"{part} restarted")

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Rows of one query on the installation's database."""
        with psycopg.connect(embedded.database_url(self.settings), connect_timeout=5) as conn:
            return conn.execute(sql.encode(), parameters or None).fetchall()

    def seen(self) -> dict[str, int]:
        """How often the engine received each prompt."""
        count: dict[str, int] = self._of_engine("_seen")["count"]
        return count


@contextlib.contextmanager
def running(
    *,
    real_engine: bool = False,
    engine: tuple[subprocess.Popen[bytes], int] | None = None,
    latency: float = 0.05,
    shared: bool = False,
    **changes: Any,
) -> Iterator[Stack]:
    """A started installation, which is removed afterwards. A real engine uses the weights prepared on this machine.

    `engine`: the process and the port of a running engine to attach to. `latency`: seconds of a request at the fake one.
    `shared`: it is the one of this test process.
    """
    if not shared:
        sets.count_start()
    folder = Path(tempfile.mkdtemp(prefix="slackwater-"))
    stack = Stack(folder, **changes)
    try:
        if real_engine:
            weights = Settings().data_dir / "models"
            weights.mkdir(parents=True, exist_ok=True)
            stack.settings.data_dir.mkdir(mode=0o700)
            (stack.settings.data_dir / "models").symlink_to(weights)
        elif engine is not None:
            stack.engine, stack.engine_port = engine
        else:
            stack.start_engine(latency)
        stack.start()
        yield stack
    except BaseException:
        if stack.log.exists():
            print(stack.log.read_text()[-8000:])
        raise
    finally:
        stack.close()
        shutil.rmtree(folder, ignore_errors=True)
