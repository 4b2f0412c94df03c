"""The proxy that the gateway is compared with: vLLM's router (Rust) in front of one engine, in a temporary environment."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from app import processes
from benchmarks.gateway.http_client import HttpTarget
from benchmarks.gateway.installation import CHAT, running
from benchmarks.harness import say, until_healthy

NAME = "vllm-router"
VERSION = "0.1.17"


@contextlib.contextmanager
def router(folder: Path, engine: str) -> Iterator[HttpTarget | None]:
    """Run the router. Yields None if it cannot be installed."""
    try:
        command = _installed(folder)
    except subprocess.CalledProcessError as error:
        say(f"no comparison: {NAME} {VERSION} cannot be installed: {error}")
        yield None
        return
    port, metrics = processes.free_port(), processes.free_port()
    flags = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics), "--log-level", "error"]
    with running([command, "--worker-urls", engine, "--policy", "round_robin", *flags]):
        url = f"http://127.0.0.1:{port}"
        until_healthy(f"{url}/health")
        yield HttpTarget(url + CHAT)


def _installed(folder: Path) -> str:
    """Install the router in its own virtual environment. Returns its command."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin" / "pip"), "install", "-qq", "--disable-pip-version-check", f"{NAME}=={VERSION}"]
    subprocess.run(install, check=True, stdout=sys.stderr)
    return str(folder / "bin" / NAME)
