"""What the tests of the command line share: one run of it, and an HTTP server with the pages of an engine or an API."""

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from app import processes, quick_start
from app import settings as configuration
from app.cli import main, options
from app.environment import child_environment
from app.settings import Settings
from app.user_errors import Failure
from testing.fakes.server_info import METRICS
from testing.waiting import LIMIT_SECONDS

GAUGES = METRICS.format(model="m", running=0, waiting=0, kv=0.0, prompt_tokens=0, generation_tokens=0)
PRIORITY = '{"vllm_config": {"scheduler_config": {"policy": "priority", "max_num_seqs": 64}}}'
INFO = "/server_info?config_format=json"


def own_process(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One run of the command line in a process of its own, for claims about the process."""
    command = [sys.executable, "-m", "app.cli.main", *arguments]
    environment = child_environment(settings, {"COLUMNS": "200"})
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)


def slackwater(settings: Settings, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same run in this process, from `main` on: a process of its own takes most of its time for imports."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        _set(patch, child_environment(settings, {"COLUMNS": "200"}))
        patch.setattr(sys, "argv", ["slackwater", *arguments])
        patch.setattr(sys, "stdin", io.StringIO())
        patch.setattr(sys, "excepthook", sys.excepthook)  # typer sets its own
        patch.setattr(processes, "keep_private", lambda: None)
        patch.setattr(quick_start, "finish", lambda: None)
        with ThreadPoolExecutor(1) as elsewhere:  # a test's own event loop may run in this thread
            code = elsewhere.submit(_exit_code).result(timeout=LIMIT_SECONDS)
    configuration.load.cache_clear()
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def _set(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Give the command line this environment."""
    configuration.load.cache_clear()
    for name, value in environment.items():
        patch.setenv(name, value)
    for console in (options.console, options.errors):
        patch.setattr(console, "_width", None)  # it was fixed when the module was loaded


def _exit_code() -> int:
    try:
        main.main()
    except SystemExit as end:
        return int(end.code or 0)


@contextmanager
def serving(pages: dict[str, str]) -> Iterator[str]:
    """A real HTTP server with these pages; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, "").encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def engine_pages(*names: str, window: int = 8192, **pages: str) -> dict[str, str]:
    """What a running vLLM answers."""
    models = json.dumps({"data": [{"id": name, "owned_by": "vllm", "max_model_len": window} for name in names]})
    usual = {
        "/health": "",
        "/version": '{"version": "0.32.0"}',
        "/v1/models": models,
        "/metrics": GAUGES,
        INFO: PRIORITY,
    }
    return usual | pages


@dataclass(frozen=True)
class Ran:
    """What a command printed, including its error message, and its exit code."""

    output: str
    exit_code: int


Run = Callable[..., Ran]
TERMINAL = {"TTY_COMPATIBLE": "1"}  # the environment in which rich takes what it writes to for a terminal


def command_line(installation: Settings, key: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, with the settings of an installation and a key."""
    _set(monkeypatch, child_environment(installation, {"SLACKWATER_API_KEY": key, "COLUMNS": "80"}))

    def call(*arguments: str, env: dict[str, str] | None = None, text: str | None = None) -> Ran:
        configuration.load.cache_clear()
        result = CliRunner().invoke(main.app, list(arguments), env=env, input=text)
        if isinstance(result.exception, Failure):
            return Ran(f"{result.output}{result.exception.problem} {result.exception.remedy}", 1)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.output, result.exit_code)

    return call
