"""The processes of the gateway benchmark: fake engines, one API process, and a worker for each engine."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

from app import processes
from app.environment import foreign_environment
from benchmarks.gateway.http_client import HttpTarget
from benchmarks.harness import MODEL, ROOT, RUN, Testbed, api, end, part, until_engines_ready

CHAT = "/v1/chat/completions"
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RunningGateway:
    """A running installation."""

    base: str
    headers: Headers
    database_url: str
    pid: int

    @property
    def chat(self) -> HttpTarget:
        """Its OpenAI route."""
        return HttpTarget(self.base + CHAT, self.headers)

    @property
    def run(self) -> HttpTarget:
        """Its Workers AI route, where batches are polled."""
        return HttpTarget(self.base + RUN, self.headers)


@contextlib.contextmanager
def installation(testbed: Testbed, engines: Sequence[str], slots: int = 256) -> Iterator[RunningGateway]:
    """One API process, and a worker for each of these engines."""
    settings = testbed.settings(testbed.database())
    with contextlib.ExitStack() as stack:
        for number, url in enumerate(engines):
            own = {"engine_url": url, "engine_name": f"engine-{number}", "engine_slots": slots}
            folder = testbed.folder / f"worker-{number}"
            stack.enter_context(part(settings.model_copy(update={**own, "data_dir": folder}), "workers.gpu"))
        process, key = stack.enter_context(api(settings))
        until_engines_ready(settings.database_url, len(engines))
        base = f"http://{settings.host}:{settings.port}"
        yield RunningGateway(base, (("authorization", f"Bearer {key}"),), settings.database_url, process.pid)


@contextlib.contextmanager
def timed_engine(**options: Any) -> Iterator[str]:
    """Run a fake engine with these command-line options. Yields its URL."""
    port = processes.free_port()
    flags = [flag for name, value in options.items() for flag in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "benchmarks.gateway.timed_engine", "--port", str(port), *flags]
    with running(command) as process:
        assert process.stdout
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("the fake engine did not start")
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(command: Sequence[str], log: IO[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a process until the block ends. With a log, all that it prints goes there; else the caller reads its output."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log or subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=ROOT,
        env=foreign_environment(),
        start_new_session=True,
        preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
    )
    try:
        yield process
    finally:
        end(process)


def question(text: str, **options: Any) -> dict[str, Any]:
    """A chat of one message, streamed."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True, **options}
