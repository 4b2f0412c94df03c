"""Hosts of a test in network namespaces, around a router that can drop whatever two of them send to each other.

This process is on a host as well, in a namespace of its own (`unshare --net`): nothing of it reaches the machine.
Each namespace lives as long as the process that holds it, and these end with us.
"""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testing.waiting import LIMIT_SECONDS, wait_for

HERE = "here"  # the host of this process


@dataclass(frozen=True, slots=True)
class Host:
    """A host. `inside` begins each command that is to run there."""

    address: str
    inside: Sequence[str]


class Network:
    """The hosts by name. `HERE` is one of them."""

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self._holders: list[subprocess.Popen[bytes]] = []
        self._cuts: list[tuple[str, str]] = []
        self._router = _inside(self._hold())
        _run(*self._router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        self._join(HERE, os.getpid())

    def add(self, name: str) -> Host:
        """Make a host."""
        return self._join(name, self._hold())

    def cut(self, one: str, *others: str) -> None:
        """Drop what `one` and each of `others` send to each other, without a word to either."""
        for other in others:
            for ends in ((one, other), (other, one)):
                self._rule("add", ends)
                self._cuts.append(ends)

    def heal(self) -> None:
        """Drop nothing any more."""
        while self._cuts:
            self._rule("del", self._cuts.pop())

    @contextmanager
    def apart(self, one: str, *others: str) -> Iterator[None]:
        """While the block runs, they are cut off."""
        self.cut(one, *others)
        try:
            yield
        finally:
            self.heal()

    def close(self) -> None:
        """End the namespaces."""
        for holder in self._holders:
            assert holder.stdin
            holder.stdin.close()
            holder.wait(LIMIT_SECONDS)

    def _rule(self, verb: str, ends: tuple[str, str]) -> None:
        sender, receiver = (self.hosts[end].address for end in ends)
        _run(*self._router, "ip", "rule", verb, "from", sender, "to", receiver, "blackhole")

    def _hold(self) -> int:
        """The pid of a process in a new namespace. It ends when we close its input, or die."""
        holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, start_new_session=True)
        self._holders.append(holder)

        def made() -> bool:
            assert holder.poll() is None, "a network namespace cannot be made here"
            return _namespace(holder.pid) != _namespace(os.getpid())

        wait_for(made, "a network namespace")
        return holder.pid

    def _join(self, name: str, pid: int) -> Host:
        """Connect the namespace of a process to the router."""
        number = len(self.hosts) + 1
        link, gateway = f"to-{number}", f"10.77.{number}.1"
        host = self.hosts[name] = Host(f"10.77.{number}.2", _inside(pid))
        _run(*self._router, "ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _run(*self._router, "ip", "address", "add", f"{gateway}/24", "dev", link)
        _run(*self._router, "ip", "link", "set", link, "up")
        _run(*host.inside, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*host.inside, "ip", "link", "set", device, "up")
        _run(*host.inside, "ip", "route", "add", "default", "via", gateway)
        return host


def _inside(pid: int) -> list[str]:
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]


def _namespace(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/net").readlink()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
