"""`python -P part.py MODULE`: runs `python -m MODULE` with a wrong wall clock. A worker adds a time stamp to each POST.

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
    """Shift the wall clock of this process."""
    right = clock.now
    clock.now = lambda: right() + timedelta(seconds=seconds)


def stamp() -> None:
    """Add the time and our pid to every POST."""
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
