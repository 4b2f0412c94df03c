"""Runs uvicorn until a signal comes: in this process, or in several that accept connections from the same sockets."""

import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from app import processes, telemetry
from app import settings as configuration
from app.api import process_metrics
from app.api.app import create_app
from app.api.envelope import refusal
from app.serving.options import limited_options
from app.settings import Settings
from app.tracing import recorder

_SILENT_SECONDS = 30  # a process that does not answer its parent for so long is replaced; a start takes some of it


def prepare() -> Settings:
    """Set up this process: signals, logs, traces. Returns its settings."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # uvicorn raises the signal again at its end
    settings = configuration.load()
    telemetry.configure(settings, "api")
    recorder.configure(settings, "api")
    return settings


def serve(settings: Settings, *, store_checked: bool) -> None:
    """Serve until a signal comes, also at the separate port of operators if there is one. `store_checked`: see `create_app`."""
    if settings.api_processes > 1:
        _serve_in_processes(settings, store_checked=store_checked)
        return
    app, options = create_app(settings, store_checked=store_checked), serving(settings)
    if not settings.admin_port:
        uvicorn.run(app, **options)
        return
    server = uvicorn.Server(uvicorn.Config(app, **options))
    server.run(_sockets(settings))
    if not server.started:
        sys.exit(STARTUP_FAILURE)  # as uvicorn.run does


def _sockets(settings: Settings) -> list[socket.socket]:
    """Bound sockets for the API and for operators. Ends the program if an address is taken."""
    addresses = [(settings.host, settings.port)]
    if settings.admin_port:
        addresses.append((settings.admin_host, settings.admin_port))
    return [uvicorn.Config("", host=host, port=port, log_config=None).bind_socket() for host, port in addresses]


class _ChildConfig(uvicorn.Config):
    """The parent's configuration. A child gets its own from its environment, because no route or limit can be sent to it."""

    store_checked = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_child, (os.getpid(), self.store_checked)


def _in_child(parent: int, store_checked: bool) -> uvicorn.Config:
    """The first call in a child process. Returns its configuration."""
    processes.die_with(parent)
    settings = prepare()
    return uvicorn.Config(create_app(settings, store_checked=store_checked), **serving(settings))


def _serve_in_processes(settings: Settings, *, store_checked: bool) -> None:
    """Run the processes and replace those that die. uvicorn stops them at a signal."""
    config = _ChildConfig(
        "",
        workers=settings.api_processes,
        log_config=None,
        access_log=False,
        timeout_worker_healthcheck=_SILENT_SECONDS,
    )
    config.store_checked = store_checked
    with process_metrics.shared():
        running = Multiprocess(config, _sockets(settings))
        running.run()
    if any(process.exitcode == STARTUP_FAILURE for process in running.processes):
        sys.exit(STARTUP_FAILURE)


def serving(settings: Settings) -> dict[str, Any]:
    """The options of uvicorn."""
    address = {"host": settings.host, "port": settings.port}
    return {**limited_options(settings, refusal), **address, "timeout_graceful_shutdown": 10}
