"""The proxy that the gateway is compared with: vLLM's router (Rust) in front of one engine."""

import contextlib
from collections.abc import Iterator

from app import processes
from benchmarks.gateway.http_client import HttpTarget
from benchmarks.gateway.installation import CHAT, running
from benchmarks.harness import say, until_healthy
from benchmarks.peer import PeerMissingError, environment

NAME = "vllm-router"
VERSION = "0.1.17"


@contextlib.contextmanager
def router(engine: str) -> Iterator[HttpTarget | None]:
    """Run the router. Yields None if it cannot be installed."""
    try:
        command = str(environment(NAME, VERSION) / "bin" / NAME)
    except PeerMissingError as error:
        say(f"no comparison: {error}")
        yield None
        return
    port, metrics = processes.free_port(), processes.free_port()
    flags = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics), "--log-level", "error"]
    with running([command, "--worker-urls", engine, "--policy", "round_robin", *flags]):
        url = f"http://127.0.0.1:{port}"
        until_healthy(f"{url}/health")
        yield HttpTarget(url + CHAT)
