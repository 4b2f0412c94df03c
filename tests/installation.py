"""One installation for each test process, on a database of the process's ring; a test asks for a fresh account of it.

API, console, steward, notifier, two workers and two fake engines, one of them for embeddings; every part serves its metrics. It
is started for the first test that uses it, and ended after the last one. Who scripts the engine replaces the rules of the tests
before, and must end what these keep waiting.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app import processes
from app.environment import child_environment
from app.settings import DEMO_MODELS
from testing.waiting import wait_for
from tests import sets
from tests.databases import Ring
from tests.system.stack import Account, Stack, running

EMBEDDER = "bge-test"
PORTS = (
    "console_port",
    "steward_metrics_port",
    "maintenance_metrics_port",
    "notifier_metrics_port",
    "worker_metrics_port",
)
LENT = "TESTS_INSTALLATION"  # set: another run of pytest lends its own
_ENTRY = f"""
[models."{EMBEDDER}"]
task = "text-embeddings"
context_window = 512
shape = "native"
capabilities = ["async_queue"]
price = {{ input = 0.01, cached_input = 0.01, output = 0 }}
"""
_READY = "select count(*) from engine where state = 'ready'"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def installation(request: pytest.FixtureRequest) -> Iterator[Stack]:
    """The installation. Tests neither kill its parts nor change its settings."""
    if LENT in os.environ:
        yield borrowed(os.environ[LENT])
        return
    ring: Ring = request.getfixturevalue("ring")
    request.node.stash[_ENDS] = lambda: request._fixturedef.finish(request)  # type: ignore[attr-defined]
    with ring.taken() as url, tempfile.TemporaryDirectory(prefix="slackwater-") as folder:
        models = Path(folder) / "models.toml"
        models.write_text(DEMO_MODELS.read_text() + _ENTRY)
        ports = {name: processes.free_port() for name in PORTS}
        with running(shared=True, database_url=url, models_file=models, **ports) as stack, _embedder(stack):
            yield stack


_ENDS = pytest.StashKey[Callable[[], None]]()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Called by pytest after each test. Parts that wait cost too: they end with the group of tests that uses them."""
    end = item.session.stash.get(_ENDS, None)
    if end and not _more(item, nextitem):
        del item.session.stash[_ENDS]
        end()


def _more(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    if nextitem is None:
        return False
    same = sets.group(item.nodeid) == sets.group(nextitem.nodeid)
    return same or "installation" in getattr(nextitem, "fixturenames", ())


@pytest.fixture(scope="session")
def new_account(installation: Stack) -> Callable[[], Account]:
    """Makes an account that nobody has used."""
    return lambda: installation.account(f"acme-{os.getpid()}-{next(_numbers)}")


@pytest.fixture
def account(new_account: Callable[[], Account]) -> Iterator[Account]:
    """An account that nobody has used."""
    account = new_account()
    yield account
    account.client.close()


@contextlib.contextmanager
def _embedder(stack: Stack) -> Iterator[None]:
    """Run a second engine and its worker while the block runs."""
    port = processes.free_port()
    own = {"engine_name": "embedder", "engine_model": EMBEDDER, "engine_url": f"http://127.0.0.1:{port}"}
    environment = child_environment(stack.settings.model_copy(update=own | {"worker_metrics_port": 0}), {})
    engine = [sys.executable, "-m", "testing.fakes.engine", "--model", EMBEDDER, "--port", str(port)]
    worker = [sys.executable, "-m", "workers.gpu"]
    with stack.log.open("ab") as log:
        parts = [subprocess.Popen(command, env=environment, stdout=log, stderr=log) for command in (engine, worker)]
    try:
        # The workers announce their engines once they are believed; only then do synchronous calls find them.
        wait_for(lambda: stack.query(_READY)[0][0] == 2, what=f"both engines ready; see {stack.log}")
        yield
    finally:
        for part in parts:
            part.kill()
            part.wait()


def lent(stack: Stack) -> dict[str, str]:
    """The environment in which another run of pytest uses this installation."""
    settings = stack.settings
    told = {"port": settings.port, "database_url": settings.database_url, "models_file": str(settings.models_file)}
    return {LENT: json.dumps([str(settings.data_dir.parent), stack.engine_port, told])}


def borrowed(told: str) -> Stack:
    """The installation of the run that started this one."""
    folder, engine_port, settings = json.loads(told)
    stack = Stack(Path(folder), **settings)
    stack.engine_port = engine_port
    return stack
