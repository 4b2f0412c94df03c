"""An installation with two processes of each kind, each of one of two versions, which are replaced one after the other."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from app import processes
from app.environment import child_environment
from tests.crash import money
from tests.crash.client import Client
from tests.crash.history import Batch, History
from tests.crash.part import WORKER
from tests.crash.system import BUDGET_TOKENS, TENANTS, Part, System
from tests.upgrade.balancer import Balancer
from tests.upgrade.versions import Version

KINDS = ("api", "worker", "steward", "notifier")
WORKERS = {"worker-0": 0, "worker-1": 1}
MODULES = {
    **{f"api-{n}": "app.api" for n in range(2)},
    **{f"steward-{n}": "workers.steward" for n in range(2)},
    **{f"notifier-{n}": "workers.notifier" for n in range(2)},
    **dict.fromkeys(WORKERS, WORKER),
}
LEASE_SECONDS = 5.0
PATIENCE_SECONDS = 90.0
ANSWERS = (200, 409, 422)  # of a submit: accepted; its key is in use; its key belongs to other items
_STARTED = """
select data->>'version' from change where kind = 'part.started' and (data->>'pid')::int = %s order by at desc limit 1"""


class Fleet(System):
    """The installation. `mixed`: it begins on the new schema, and the second process of each kind is new; else all is old."""

    modules = MODULES
    workers = WORKERS

    def __init__(self, history: History, seed: int, old: Version, new: Version, *, mixed: bool = False) -> None:
        super().__init__(history, seed, LEASE_SECONDS)
        self.old, self.new = old, new
        self._mixed = mixed
        self.versions = dict.fromkeys(KINDS, old)
        self.balancer = Balancer()

    async def migrate(self, version: Version, *options: str) -> None:
        """Run `slackwater migrate` of a version."""
        await version.command("migrate", *options, settings=child_environment(self.direct, {}))

    async def replace(self, kind: str, version: Version) -> None:
        """Replace the processes of a kind one after the other, each when the one before works."""
        for name in [name for name in self.parts if name.startswith(kind)]:
            await self.restart(name, version)
            await self.until_serving(name)
        self.versions[kind] = version

    async def restart(self, name: str, version: Version) -> None:
        """Stop a process as an upgrade does, and wait until one of this version has started."""
        part = self.parts[name]
        if name.startswith("api"):
            await self.balancer.remove(name)
        before, part.code = part.process, version.code
        part.send(signal.SIGTERM)
        self.history.log_line(f"{name} → {version.version}")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while part.process is before or await self.version_of(part) != version.version:
                await asyncio.sleep(0.1)

    async def until_serving(self, name: str) -> None:
        """Wait until an API is ready, and give it requests. Other parts ask for nothing but that they run."""
        if name.startswith("api"):
            port = self.parts[name].settings.port
            async with asyncio.timeout(PATIENCE_SECONDS):
                while (await ready(port))[0] != 200:
                    await asyncio.sleep(0.1)
            self.balancer.add(name, port)

    async def version_of(self, part: Part) -> str | None:
        """The version that the running process has given in the database. None: it has not started yet."""
        if not part.running or part.process is None:
            return None
        found = await self.postgres.rows(_STARTED, part.process.pid)
        return str(found[0][0]) if found else None

    async def close(self, keep_logs: bool) -> Path | None:
        """Stop everything."""
        kept = await super().close(keep_logs)
        with suppress(AttributeError):  # it had not begun to listen
            await self.balancer.close()
        return kept

    async def until_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for every part."""
        for name, part in self.parts.items():
            async with asyncio.timeout(seconds):
                while await self.version_of(part) != self._first(name).version:
                    await asyncio.sleep(0.1)
            await self.until_serving(name)

    async def _migrate(self) -> None:
        await self.migrate(self.old)
        if self._mixed:
            await self.migrate(self.new)

    def _first(self, name: str) -> Version:
        return self.new if self._mixed and name.endswith("-1") else self.old

    async def _begin(self, name: str) -> None:
        await super()._begin(name)
        self.parts[name].code = self._first(name).code

    def _own(self, name: str) -> dict[str, object]:
        return {"port": processes.free_port()} if name.startswith("api") else super()._own(name)

    async def _create_accounts(self) -> None:
        """By the old version: this code may not know the old schema any more."""
        await self.balancer.start(self.settings.port)
        variables = child_environment(self.direct, {})
        for tenant in TENANTS:
            printed = await self.old.command("key", "create", "--account", tenant, settings=variables)
            self.keys[tenant] = printed.split()[0]
        await money.watch(self.postgres)


class SubmittingClient(Client):
    """Counts every submit that did not get its answer at the first attempt. Each request has a connection of its own."""

    options: Mapping[str, Any] = {"timeout": 60, "limits": httpx.Limits(max_keepalive_connections=0)}

    async def start(self) -> None:
        """Log in, subscribe, and set the first budgets."""
        await super().start()
        for account, terms in money.first_budgets(BUDGET_TOKENS).items():
            assert await self.budget(account, money.TIGHT, terms) == 200

    async def submit(self, batch: Batch) -> httpx.Response | None:
        """One attempt."""
        answer = await super().submit(batch)
        self._history.notes["submits"] += 1
        if answer is None or answer.status_code not in ANSWERS:
            why = f"{answer.status_code} {answer.text[:200]}" if answer is not None else "no answer, or a 500"
            self._history.wrong("failed_submits", f"{batch.key}: {why}")
        return answer


async def ready(port: int) -> tuple[int, Any]:
    """Status and body of an API's `/ready`; 0 if it does not answer."""
    async with httpx.AsyncClient(timeout=10, trust_env=False) as client:
        try:
            answer = await client.get(f"http://127.0.0.1:{port}/ready")
        except httpx.TransportError:
            return 0, None
        return answer.status_code, answer.text
