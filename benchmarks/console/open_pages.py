"""Many open pages: `python -m benchmarks.console.open_pages PORT`, a process that reads the live parts of pages and drops them.

It reads one line of JSON from stdin, the pages as [path, cookie] each, prints `ready` when every page has had its first event,
and at the next line prints the events and bytes that came since then. A stream that ends before is an error.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import uvloop

from app import processes
from app.access.roles import Role
from app.environment import foreign_environment
from benchmarks.console.live_stream import LiveStream, opened
from benchmarks.console.site import Site
from benchmarks.harness import ROOT, end

# The pages with live parts that need no id.
PLAIN = ("now", "batches", "engines", "fairness", "incidents", "webhooks", "keys", "access")


def stream(page: str, **params: object) -> str:
    """The address of a page's live parts."""
    return f"/console/stream?{urlencode({'page': page, **params})}"


@dataclass(frozen=True)
class OpenPages:
    """Pages that are open now, in a process of their own."""

    process: subprocess.Popen[str]

    def report(self) -> dict[str, int]:
        """The events and bytes since all pages were open. Raises SystemExit if a stream has ended."""
        assert self.process.stdin
        assert self.process.stdout
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a live page was closed by the console")
        found: dict[str, int] = json.loads(line)
        return found


@contextlib.contextmanager
def open_pages(site: Site, paths: Sequence[str], count: int) -> Iterator[OpenPages]:
    """`count` operators, each with a session of their own and one open page; the pages are taken in turn."""
    pages = [(paths[n % len(paths)], site.sign_in(Role.OPERATOR, name=f"reader-{n}")) for n in range(count)]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.console.open_pages", str(site.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=foreign_environment(),
        start_new_session=True,
        preexec_fn=processes.dies_with_parent(),  # noqa: PLW1509 - no thread runs yet
    )
    try:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(pages) + "\n")
        process.stdin.flush()
        if process.stdout.readline().strip() != "ready":
            raise SystemExit("not every live page could be opened")
        yield OpenPages(process)
    finally:
        end(process)


async def read(port: int, pages: Sequence[tuple[str, str]]) -> None:
    """Read all pages until stdin has a line. Raises StreamEndedError."""
    streams: list[LiveStream] = []
    events = 0

    async def follow(path: str, cookie: str, first: asyncio.Event) -> None:
        nonlocal events
        async with opened(port, path, cookie) as stream:
            streams.append(stream)
            async for _ in stream.events():
                events += 1
                first.set()

    firsts = [asyncio.Event() for _ in pages]
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(follow(*page, first)) for page, first in zip(pages, firsts, strict=True)]
        for first in firsts:
            await first.wait()
        before = events, sum(stream.received for stream in streams)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        received = sum(stream.received for stream in streams)
        print(json.dumps({"events": events - before[0], "bytes": received - before[1]}), flush=True)
        for task in following:
            task.cancel()


if __name__ == "__main__":
    uvloop.run(read(int(sys.argv[1]), [tuple(page) for page in json.loads(sys.stdin.readline())]))
