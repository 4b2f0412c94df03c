"""Starts and stops child processes so that none is left running.

Three measures: a child is stopped with its process group. On Linux, the kernel sends it SIGTERM when its parent dies, even
by SIGKILL. Every child has a mark in its environment, by which the next start finds and kills those left over.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_umasks: list[int] = []  # those that were replaced; the first one is our caller's


def keep_private() -> None:
    """Make files that this process and its children create accessible to their owner only. Every program calls it first."""
    _umasks.append(os.umask(0o077))


def keep_unreadable() -> None:
    """Keep other processes of the same user from reading the environment and the memory of this one. On Linux; not from root."""
    if _libc is not None:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextmanager
def usual_modes() -> Iterator[None]:
    """Within, new files have the modes that the caller of this program chose: for the files that a user asked for."""
    if not _umasks:
        yield
        return
    before = os.umask(_umasks[0])
    try:
        yield
    finally:
        os.umask(before)


def dies_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that ends the child when the calling process dies."""
    return partial(die_with, os.getpid())


def die_with(parent: int) -> None:
    """End this process when its parent, which has this pid, dies."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def python_module(name: str, *arguments: str) -> list[str]:
    """The command line that runs an installed module, even if the current directory has a folder of its name."""
    return [sys.executable, "-P", "-m", name, *arguments]


def marked(variable: str, value: str) -> list[int]:
    """Living processes other than this one whose environment holds `variable=value`."""
    mark = f"{variable}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def titled(pids: list[int], prefix: str) -> list[int]:
    """The processes whose short name in the kernel begins with `prefix`."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith(prefix):
                found.append(pid)
    return found


async def first_exit(pids: list[int]) -> int:
    """Wait until one of these processes has ended, and return its pid. They need not be children. Only Linux supports it;
    elsewhere it waits for ever.
    """
    loop, descriptors = asyncio.get_running_loop(), list[int]()
    ended: asyncio.Future[int] = loop.create_future()

    def resolve(pid: int) -> None:
        if not ended.done():
            ended.set_result(pid)

    try:
        for pid in pids if sys.platform == "linux" else ():
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:
                resolve(pid)
            else:
                loop.add_reader(descriptors[-1], resolve, pid)
        return await ended
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def kill(pids: list[int]) -> None:
    """Send SIGKILL to each process that still runs."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group, if it still exists."""
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def free_port() -> int:
    """A TCP port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_dtype() -> str:
    """The number format that vLLM computes fastest on this CPU. Without AVX-512, vLLM emulates bfloat16 at a quarter of
    float32's speed (measured on an AMD EPYC with AVX2).
    """
    with suppress(OSError):
        if "avx512f" not in Path("/proc/cpuinfo").read_text():
            return "float32"
    return "bfloat16"


def address(host: str, port: int) -> str:
    """The URL of a server that listens on `host`, for other machines. Uses this host's name if it listens everywhere."""
    anywhere = ("0.0.0.0", "::", "")  # noqa: S104  (wildcard addresses, which no client can connect to)
    name = socket.gethostname() if host in anywhere else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
