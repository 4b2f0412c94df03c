"""`python -m tests.crash.part MODULE`: `python -m MODULE` under a wrong wall clock. A worker stamps its requests.

The stamp says who sent a request, and when. It is taken when the HTTP client is called, so it tells a request that a SIGSTOP
caught on its way from one that was started after the SIGCONT.
"""

import os
import runpy
import sys
import time
from datetime import timedelta
from typing import Any

import aiohttp

from app import clock

SKEW = "CRASH_SKEW_SECONDS"
WORKER = "workers.gpu"
SENT, SENDER = "x-crash-sent", "x-crash-sender"


def skew(seconds: float) -> None:
    """Move the process's only wall clock."""
    right = clock.now
    clock.now = lambda: right() + timedelta(seconds=seconds)


def stamp() -> None:
    """Put the time and our pid on every request that is posted."""
    session: Any = aiohttp.ClientSession
    request = session._request

    async def stamped(self: aiohttp.ClientSession, method: str, url: Any, **options: Any) -> Any:
        headers = dict(options.pop("headers", None) or {}) | {SENT: repr(time.time()), SENDER: str(os.getpid())}
        return await request(self, method, url, headers=headers, **options)

    session._request = stamped


if __name__ == "__main__":
    module = sys.argv.pop()
    skew(float(os.environ.get(SKEW, "0")))
    if module == WORKER:
        stamp()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
