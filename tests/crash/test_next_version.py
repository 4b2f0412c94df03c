"""Claims about two versions side by side: this code, and the same code as the next version, with one revision more."""

import asyncio
import itertools
import shutil
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import processes
from app.environment import child_environment
from tests import next_revision
from tests.crash.checker import report, while_loaded
from tests.crash.client import Client
from tests.crash.history import Batch, History
from tests.crash.load import Load
from tests.crash.logs import judge_logs
from tests.crash.part import WORKER
from tests.crash.system import ROOT, Code, System
from tests.timing import note

pytestmark = pytest.mark.slow

NEXT = "-next"
KINDS = {
    "api": "app.api",
    "worker": WORKER,
    "steward": "workers.steward",
    "maintenance": "workers.maintenance",
    "notifier": "workers.notifier",
}
WORKERS = {"worker": 0, f"worker{NEXT}": 1}  # name → engine
LEASE_SECONDS = 5.0
CLIENTS = 4
PROOFS = 3  # batches that succeed in each state of the upgrade
PATIENCE_SECONDS = 240.0
ANSWERS = (200, 409, 422)  # of a submit: accepted; its key is in use; its key belongs to other items
_COMMAND = "from app.cli.main import main; main()"


def next_version(folder: Path) -> Code:
    """A copy of this code with the next revision."""
    for package in ("app", "workers", "migrations"):
        shutil.copytree(ROOT / package, folder / package)
    next_revision.write(folder / "migrations" / "versions")
    return Code(folder=str(folder))


class TwoVersions(System):
    """An installation with a process of each kind. Later each gets another beside it, of the next version."""

    modules = KINDS
    workers = WORKERS

    def __init__(self, history: History, seed: int, code: Code) -> None:
        super().__init__(history, seed, LEASE_SECONDS)
        self.code = code
        self.next_port = processes.free_port()

    async def join(self) -> None:
        """Start the processes of the next version, and wait for its API."""
        self.modules = {name + NEXT: module for name, module in KINDS.items()}
        for name in self.modules:
            await self._begin(name)
        await self.until_ready_says(self.next_port, 200)

    async def migrate(self, *options: str) -> None:
        """Run `slackwater migrate` of the next version."""
        process = await asyncio.create_subprocess_exec(
            *(self.code.python, "-P", "-c", _COMMAND, "migrate", *options),
            env=self.code.environment(child_environment(self.direct, {})),
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await process.wait() == 0

    async def ready(self, port: int) -> tuple[int, str]:
        """What an API's `/ready` says."""
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
            try:
                answer = await client.get(f"http://127.0.0.1:{port}/ready")
            except httpx.TransportError:
                return 0, ""
            return answer.status_code, answer.text

    async def until_ready_says(self, port: int, status: int, words: str = "") -> None:
        """Wait for that answer."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (said := await self.ready(port))[0] != status or words not in said[1]:
                await asyncio.sleep(0.1)

    async def until_leads(self, name: str) -> None:
        """Wait for a steward's lead."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "steward.leads" not in (self.ground.logs / f"{name}.log").read_text():
                await asyncio.sleep(0.1)

    async def proven(self) -> set[int]:
        """Wait until batches that were accepted from now on have succeeded, and their events were received. Returns the
        processes that sent requests to engines meanwhile.
        """
        began, history = time.time(), self.history
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                told = {request_id for _, kind, request_id in history.webhooks if kind.endswith("batch.succeeded")}
                if sum(b.accepted_at > began and b.request_id in told for b in history.accepted) >= PROOFS:
                    return {arrival.sender for arrival in history.arrivals if arrival.at > began}
                await asyncio.sleep(0.05)

    def _own(self, name: str) -> dict[str, object]:
        return {"port": self.next_port} if name == f"api{NEXT}" else super()._own(name)

    async def _begin(self, name: str) -> None:
        await super()._begin(name)
        if name.endswith(NEXT):
            self.parts[name].code = self.code


class SubmittingClient(Client):
    """Submits to both APIs by turns, once there are two. Counts every submit without its answer at the first attempt."""

    options: Mapping[str, Any] = {"timeout": 60}

    async def start(self) -> None:
        """Log in and subscribe."""
        await super().start()
        self._apis = [self._clients]

    async def submit_to(self, url: str) -> None:
        """Submit to this API as well."""
        clients = {
            tenant: httpx.AsyncClient(
                base_url=str(client.base_url).replace(self._system.url, url),
                headers=client.headers,
                trust_env=False,
                **self.options,
            )
            for tenant, client in self._clients.items()
        }
        self._apis.append(clients)

    async def submit(self, batch: Batch) -> httpx.Response | None:
        """One attempt."""
        answer = await super().submit(batch)
        self._history.notes["submits"] += 1
        if answer is None or answer.status_code not in ANSWERS:
            why = f"{answer.status_code} {answer.text[:200]}" if answer is not None else "no answer, or a 500"
            self._history.wrong("failed_submits", f"{batch.key}: {why}")
        return answer

    def _submits(self, tenant: str) -> httpx.AsyncClient:
        self._apis.append(self._apis.pop(0))
        return self._apis[0][tenant]

    async def close(self) -> None:
        """Close the connections."""
        for client in itertools.chain.from_iterable(clients.values() for clients in self._apis):
            await client.aclose()


class ShortLoad(Load):
    """The load of tests.crash with a short queue, so that no state of the upgrade lasts for long."""

    most_open_items = 150


async def test_an_upgrade_under_load_fails_no_submit_and_loses_doubles_and_runs_nothing_again(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    history = History()
    system = TwoVersions(history, 1, await asyncio.to_thread(next_version, tmp_path))
    client = SubmittingClient(system, history)

    async def upgrade() -> None:
        """Migrate beside the old version, add the next one, and close the schema to the old one."""
        await system.proven()
        await system.migrate()
        await system.join()
        await client.submit_to(f"http://127.0.0.1:{system.next_port}")
        senders: set[int] = set()
        while len(senders) < len(system.workers):
            senders |= await system.proven()
        assert (await system.ready(system.settings.port))[0] == 200
        await system.migrate("--contract")
        await system.until_ready_says(system.settings.port, 503, "install a newer version")
        await system.until_leads(f"steward{NEXT}")
        await system.proven()

    try:
        await system.start()
        await while_loaded(system, client, ShortLoad(client, history, 1), upgrade, CLIENTS)
    except Exception:  # of clients that never got a response, too
        history.wrong("broken_runs", traceback.format_exc())
    finally:
        judge_logs(history, system.ground.logs)
        await system.close(keep_logs=not history.sound)
    note(report(history, 1))
    assert history.sound, report(history, 1)
