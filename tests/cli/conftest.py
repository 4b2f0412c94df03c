"""The command line in this process, against an API that really listens."""

import socket
import sys
import threading
from collections.abc import Iterator

import httpx
import pytest
import structlog
import uvicorn

from app import settings as configuration
from app.cli.key import create_key
from app.settings import Settings
from app.tenants.key_scope import EVERYTHING
from testing.waiting import LIMIT_SECONDS
from tests.api import in_process
from tests.cli.support import Run, command_line


@pytest.fixture
def api(settings: Settings) -> Iterator[Settings]:
    """Settings whose host and port an API of this database listens on. Its logs do not appear in the output of commands."""
    logging = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stdout__), cache_logger_on_first_use=False)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listening = settings.model_copy(update={"port": listener.getsockname()[1]})
        server = uvicorn.Server(uvicorn.Config(in_process.served(listening), log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        httpx.get(f"http://127.0.0.1:{listening.port}/health", timeout=LIMIT_SECONDS)
        yield listening
        server.should_exit = True
        thread.join()
    structlog.configure(**logging)


@pytest.fixture
def key(api: Settings) -> str:
    """An API key of the account `acme`."""
    return create_key(api, "acme", "test", None, scope=EVERYTHING)


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
