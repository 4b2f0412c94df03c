"""AIBrix's metadata service, which implements OpenAI's batch API, with its own virtual environment and its own Redis."""

import contextlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from openai import OpenAI

from app import processes
from app.environment import foreign_environment
from benchmarks import harness
from benchmarks.gateway.installation import running
from benchmarks.openai_batch.slot_engine import client_of
from benchmarks.peer import PeerMissingError, environment

VERSION = "0.8.0"
LOCK_SECONDS = 30  # for so long, a request in flight at a crash is locked; the default is 600


class Aibrix:
    """The service. Its API and its batch driver are one process, which can be killed and restarted."""

    def __init__(self, python: str, folder: Path, redis_port: int, engine_url: str, slots: int) -> None:
        self.slots = slots
        self._port = processes.free_port()
        self._command = [
            python,
            "-m",
            "benchmarks.openai_batch.aibrix_service",
            str(self._port),
            engine_url,
            str(slots),
        ]
        self._folder = folder
        self._environment = foreign_environment() | {
            "STORAGE_TYPE": "local",
            "STORAGE_LOCAL_PATH": str(folder / "storage"),
            "METASTORE_TYPE": "redis",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(redis_port),
            "AIBRIX_BATCH_TELEMETRY_INTERVAL_SECONDS": "60",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self.client: OpenAI = client_of(f"http://127.0.0.1:{self._port}/v1", "none")

    @property
    def extra(self) -> Mapping[str, object]:
        """Fields of a create beside OpenAI's: use all slots from the start, with a lock shorter than the default."""
        options = {
            "max_concurrency": self.slots,
            "adaptive_concurrency": False,
            "request_timeout_seconds": LOCK_SECONDS,
        }
        return {"aibrix": {"client": options}}

    def start(self) -> None:
        """Start the process. Returns when it is ready."""
        self._process = harness.start(self._command, self._environment, self._folder / "service.log")
        harness.until_healthy(f"http://127.0.0.1:{self._port}/readyz", self._process)

    def kill(self) -> None:
        """Send SIGKILL to the process."""
        if self._process is not None:
            processes.signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stored(self, batch_id: str) -> set[str] | None:
        """None: AIBrix's storage format is not read."""
        return None


@contextlib.contextmanager
def service(folder: Path, engine_url: str, slots: int) -> Iterator[Aibrix]:
    """Run the service on an empty store and an empty Redis until the block ends."""
    port, folder = processes.free_port(), Path(tempfile.mkdtemp(prefix="aibrix-", dir=folder))
    redis = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with running([*redis, "--loglevel", "warning"]):
        made = Aibrix(str(environment("aibrix", VERSION) / "bin" / "python"), folder, port, engine_url, slots)
        try:
            made.start()
            yield made
        finally:
            made.kill()


def unavailable() -> str | None:
    """The reason for which AIBrix cannot run here; None if it can. Installs it the first time."""
    if not shutil.which("redis-server"):
        return "AIBrix needs redis-server, which is not on the PATH"
    try:
        environment("aibrix", VERSION)
    except PeerMissingError as error:
        return str(error)
    return None
