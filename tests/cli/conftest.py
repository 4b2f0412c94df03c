"""The command line in this process, against an API that really listens."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
import structlog
import uvicorn
from typer.testing import CliRunner

from app import settings as configuration
from app.api.app import create_app
from app.cli import main, options
from app.cli.key import create_key
from app.settings import Settings, child_environment
from app.user_errors import Failure


@dataclass(frozen=True)
class Ran:
    """What a command printed, including its error message, and its exit code."""

    output: str
    exit_code: int


Run = Callable[..., Ran]
TERMINAL = {"TTY_COMPATIBLE": "1"}  # the environment in which rich takes what it writes to for a terminal


@pytest.fixture
def api(settings: Settings) -> Iterator[Settings]:
    """Settings whose host and port an API of this database listens on. Its logs do not appear in the output of commands."""
    logging = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stdout__), cache_logger_on_first_use=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening = settings.model_copy(update={"port": listener.getsockname()[1]})
        server = uvicorn.Server(uvicorn.Config(create_app(listening), log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        httpx.get(f"http://127.0.0.1:{listening.port}/health", timeout=60)
        yield listening
        server.should_exit = True
        thread.join()
    structlog.configure(**logging)


@pytest.fixture
def key(api: Settings) -> str:
    """An API key of the account `acme`."""
    return create_key(api, "acme", "test", None)


@pytest.fixture
def run(api: Settings, key: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs the command line with that key, in 80 columns, for `run("batch", "list")`."""
    yield command_line(api, key, monkeypatch)
    configuration.load.cache_clear()


@pytest.fixture
def local(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """As `run`, for commands that need no API."""
    yield command_line(settings, "", monkeypatch)
    configuration.load.cache_clear()


def command_line(installation: Settings, key: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command line in this process, with the settings of an installation and a key."""
    known = child_environment(installation, {"SLACKWATER_API_KEY": key, "COLUMNS": "80"})
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    for console in (options.console, options.errors):
        monkeypatch.setattr(console, "_width", None)  # it was fixed when the module was loaded

    def call(*arguments: str, env: dict[str, str] | None = None, text: str | None = None) -> Ran:
        configuration.load.cache_clear()
        result = CliRunner().invoke(main.app, list(arguments), env=env, input=text)
        if isinstance(result.exception, Failure):
            return Ran(f"{result.output}{result.exception.problem} {result.exception.remedy}", 1)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.output, result.exit_code)

    return call
