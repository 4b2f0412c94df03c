"""Child processes that can be neither orphaned nor forgotten (Linux; elsewhere only the first and last net hold).

Three nets: a child is stopped with its process group; the kernel sends it SIGTERM when its parent dies, even by SIGKILL;
and every process we start carries a mark in its environment, by which the next start finds what slipped through.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_umasks: list[int] = []  # those that were replaced; the first one is our caller's


def keep_private() -> None:
    """What this process and its children make from now on is for their own user alone. Each of our programs begins with it."""
    _umasks.append(os.umask(0o077))


@contextmanager
def usual_modes() -> Iterator[None]:
    """What is made within has the modes that our caller wants: a file that a user asked us to write is none of ours."""
    if not _umasks:
        yield
        return
    before = os.umask(_umasks[0])
    try:
        yield
    finally:
        os.umask(before)


def dies_with_parent() -> Callable[[], None]:
    """A `preexec_fn` that ties the child's life to the calling process."""
    parent = os.getpid()

    def tie() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return tie


def python_module(name: str, *arguments: str) -> list[str]:
    """The command line that runs a module as it is installed, whatever folder of its name the current directory holds."""
    return [sys.executable, "-P", "-m", name, *arguments]


def marked(variable: str, value: str) -> list[int]:
    """Living processes other than this one whose environment holds `variable=value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0") and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def titled(pids: list[int], prefix: str) -> list[int]:
    """Those of the processes whose short title, as the kernel keeps it, begins so."""
    found = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith(prefix):
                found.append(pid)
    return found


async def first_exit(pids: list[int]) -> int:
    """Wait until one of these processes, children or not, has ended; returns its pid. Elsewhere than on Linux: for ever."""
    loop, descriptors = asyncio.get_running_loop(), list[int]()
    ended: asyncio.Future[int] = loop.create_future()

    def tell(pid: int) -> None:
        if not ended.done():
            ended.set_result(pid)

    try:
        for pid in pids if sys.platform == "linux" else ():
            try:
                descriptors.append(os.pidfd_open(pid))
            except ProcessLookupError:
                tell(pid)
            else:
                loop.add_reader(descriptors[-1], tell, pid)
        return await ended
    finally:
        for descriptor in descriptors:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def kill(pids: list[int]) -> None:
    """SIGKILL to each that still lives."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def signal_group(leader: int, number: signal.Signals) -> None:
    """Send a signal to a whole process group, if it still exists."""
    with suppress(ProcessLookupError):
        os.killpg(leader, number)


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_dtype() -> str:
    """The number format that vLLM computes fastest on this CPU. Without AVX-512 it emulates bfloat16, at a quarter of float32's
    speed (measured on an AMD EPYC with AVX2).
    """
    with suppress(OSError):
        if "avx512f" not in Path("/proc/cpuinfo").read_text():
            return "float32"
    return "bfloat16"


def address(host: str, port: int) -> str:
    """The URL under which others reach what listens on `host`; by this host's name if it listens everywhere."""
    anywhere = ("0.0.0.0", "::", "")  # noqa: S104  (addresses that nobody can connect to)
    name = socket.gethostname() if host in anywhere else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
