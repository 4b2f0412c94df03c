"""An installation on a primary and its synchronous standby. With a network, each of these, the API and the workers has a host."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from app import processes
from tests.crash.history import History
from tests.crash.part import WORKER
from tests.crash.system import Code, System
from tests.failover.network import HERE, Network
from tests.failover.servers import Pair, Server

PRIMARY, STANDBY = "primary", "standby"
API = "api"
WORKERS = {"worker-0": 0, "worker-1": 1}
MODULES = {
    API: "app.api",
    "steward-0": "workers.steward",
    "steward-1": "workers.steward",
    "maintenance": "workers.maintenance",
    "notifier": "workers.notifier",
    **dict.fromkeys(WORKERS, WORKER),
}
HOSTS = (PRIMARY, STANDBY, API, *WORKERS)
DATABASE_PORT = 5432


class Replicated(System):
    """The installation. Engines, receiver, stewards, notifier and clients are on the host of this process."""

    modules = MODULES
    workers = WORKERS

    def __init__(self, history: History, seed: int, lease: float, network: Network | None = None) -> None:
        super().__init__(history, seed, lease)
        self._network = network
        if network is not None:
            self.settings = self.settings.model_copy(update={"webhook_allow_private": "all"})  # the API has an address
            for name in HOSTS:
                network.add(name)
            self.url = f"http://{network.hosts[API].address}:{self.settings.port}"
            for engine in self.engines:
                engine.host = network.hosts[HERE].address
        self.postgres = self.pair = Pair(self.settings, history, self._server(PRIMARY), self._server(STANDBY))

    async def close(self, keep_logs: bool) -> Path | None:
        """Stop everything."""
        self.pair.close()
        return await super().close(keep_logs)

    def _server(self, name: str) -> Server:
        folder = self.ground.disk / name
        if self._network is None:
            return Server(folder, "127.0.0.1", processes.free_port())
        host = self._network.hosts[name]
        return Server(folder, host.address, DATABASE_PORT, host.inside)

    def _own(self, name: str) -> dict[str, object]:
        own = {"database_url": self.pair.url, **super()._own(name)}
        if self._network is None or name not in HOSTS:
            return own
        address = self._network.hosts[name].address
        return {**own, "host": address, "arrival_host": address}

    async def _begin(self, name: str) -> None:
        await super()._begin(name)
        if self._network is not None and name in HOSTS:
            self.parts[name].code = Code(python=str(self._interpreter(name, self._network.hosts[name].inside)))

    def _interpreter(self, name: str, inside: Sequence[str]) -> Path:
        """A program that runs Python on the host."""
        program = self.ground.folder / f"python-on-{name}"
        program.write_text(f'#!/bin/sh\nexec {shlex.join([*inside, sys.executable])} "$@"\n')
        program.chmod(0o755)
        return program
