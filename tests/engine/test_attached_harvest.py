"""A stock vLLM server, started by hand with the plug-in's wheel and two variables; Slackwater finds it, and both are killed."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import processes
from app.engines import catalogue, model_weights
from app.engines.catalogue import Model
from app.environment import foreign_environment
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, LOADING_SECONDS, wait_for
from tests.system.stack import MODEL, Stack, running
from tests.timing import note
from workers.engine.control_page import Report
from workers.engine.page_folder import PageFolder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TOKENS = 30
ITEMS = [{"prompt": f"Count from {n}.", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True} for n in range(8)]
ASKED = {"model": MODEL, "prompt": "The tide", "max_tokens": 8, "ignore_eos": True, "temperature": 0}


class Server:
    """`vllm` with the model of the tests. The page is read as a worker reads it."""

    def __init__(self, folder: Path, model: Model) -> None:
        self.port, self.log = processes.free_port(), folder / "vllm.log"
        self.url = processes.address("127.0.0.1", self.port)
        self.folder = PageFolder(folder / "pages")
        arguments = model.engine_arguments(Settings().data_dir, "float32")
        mending = arguments.index("--worker-extension-cls")  # ours: a stock engine has none
        arguments[mending : mending + 2] = []
        module = processes.python_module("vllm.entrypoints.openai.api_server")
        self._command = [*module, "--host", "127.0.0.1", "--port", str(self.port), *arguments]
        self._environment = {
            **foreign_environment(),
            **model.to_launch().env,
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "INFO",
            "PYTHONPATH": str(folder / "wheel"),
            "SLACKWATER_HARVEST": "on",
            "SLACKWATER_PAGE_DIR": str(folder / "pages"),
        }
        self._cwd = folder

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, cwd=self._cwd, stdout=log, stderr=log, start_new_session=True
            )

        def answers() -> bool:
            assert process.poll() is None, self.log.read_text()[-3000:]
            return httpx.get(f"{self.url}/health").status_code == 200

        try:
            wait_for(answers, "vLLM answers", seconds=LOADING_SECONDS)
        except BaseException:
            processes.signal_group(process.pid, signal.SIGKILL)
            raise
        return process

    def report(self) -> Report:
        """What the scheduler reports now."""
        self.folder.look()
        assert self.folder.problem is None
        [page] = self.folder.pages
        report = page.report()
        assert report is not None
        return report


@pytest.fixture
def server() -> Iterator[Server]:
    """The server's environment has the wheel and nothing else of ours on its path."""
    model = catalogue.load(Settings().models_file).resolve(MODEL)
    assert model is not None
    model_weights.prepare(Settings(), model)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build = [str(ROOT / "deploy" / "build-plugin.sh"), str(folder)]
        subprocess.run(build, env={**os.environ, "PYTHON": sys.executable}, check=True, timeout=LIMIT_SECONDS)
        pip = [
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "--no-deps",
            "--no-index",
        ]
        subprocess.run(
            [*pip, "--target", str(folder / "wheel"), *folder.glob("*.whl")], check=True, timeout=LIMIT_SECONDS
        )
        server = Server(folder, model)
        yield server
        server.folder.close()


@contextmanager
def asking(url: str) -> Iterator[list[int]]:
    """A synchronous caller of the engine itself, one request after the other: the statuses of its answers."""
    stop, statuses = threading.Event(), list[int]()

    def ask() -> None:
        while not stop.is_set():
            try:
                statuses.append(httpx.post(f"{url}/v1/completions", json=ASKED, timeout=LIMIT_SECONDS).status_code)
            except httpx.TransportError:
                statuses.append(0)

    caller = threading.Thread(target=ask)
    caller.start()
    yield statuses
    stop.set()
    caller.join()


def protection(stack: Stack) -> tuple[str, list[Any]]:
    """Where the status says that requests are protected, and the problems that it names."""
    [engine] = stack.client.get("/status").json()["engines"]
    return engine["protection"], engine["problems"]


def completed(stack: Stack, request_id: str) -> None:
    """Wait for the end: every item has one result, and it is an answer."""
    result = wait_for(lambda: stack.poll(request_id))
    assert [response["success"] for response in result["responses"]] == [True] * len(ITEMS)
    assert result["usage"]["completion_tokens"] == TOKENS * len(ITEMS)
    twice = "select count(*) from (select from item_result group by batch_id, seq having count(*) > 1) more"
    assert stack.query(twice) == [(0,)]


def batch_runs(server: Server, least: int = 4) -> bool:
    """Whether our plan shares the steps, with batch work in them."""
    report = server.report()
    return report.planning and report.batch_running >= least


@contextmanager
def attached(server: Server) -> Iterator[Stack]:
    """The server, and an installation that has found the scheduler in it."""
    engine = server.start()
    try:
        with running(
            engine=(engine, server.port), page_dir=str(server.folder.folder), engine_slots=32, idle_step_ms=60_000
        ) as stack:
            wait_for(lambda: protection(stack) == ("inside", []), "protection inside")
            yield stack
    finally:
        processes.signal_group(engine.pid, signal.SIGKILL)


def test_a_server_started_by_hand_is_harvested_from_inside_and_a_killed_worker_loses_nothing(server: Server) -> None:
    with attached(server) as stack:
        assert "HARVEST_ON: scheduler slackwater_vllm.scheduler.HarvestScheduler; scheduling policy priority" in (
            server.log.read_text()
        )
        request_id = stack.submit(ITEMS)
        with asking(server.url) as statuses:
            wait_for(lambda: batch_runs(server), "batch in steps that our plan shares")
            stack.kill("gpu-worker")
            wait_for(lambda: batch_runs(server), "batch under the next worker")
            completed(stack, request_id)
        note(f"attached engine with the plug-in: {len(statuses)} synchronous requests while a worker was killed")
        assert set(statuses) == {200}
        assert (server.report().faults, server.report().tripped) == (0, False)


def test_after_the_attached_engine_was_killed_the_next_one_is_harvested_from_inside_and_nothing_is_lost(
    server: Server,
) -> None:
    with attached(server) as stack:
        request_id = stack.submit(ITEMS)
        wait_for(lambda: batch_runs(server), "batch in the engine")
        assert stack.engine is not None
        os.killpg(stack.engine.pid, signal.SIGKILL)
        stack.engine.wait()
        stack.engine = server.start()
        try:
            # Whatever was in an engine that died runs alone at first.
            wait_for(lambda: batch_runs(server, 1), "batch in the next engine's steps")
            completed(stack, request_id)
            wait_for(lambda: protection(stack) == ("inside", []), "protection inside again")
            assert (server.report().faults, server.report().tripped) == (0, False)
            assert len(list(server.folder.folder.glob("*.page"))) == 1
        finally:
            processes.signal_group(stack.engine.pid, signal.SIGKILL)
