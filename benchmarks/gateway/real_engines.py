"""Arm: time to the first token and session affinity on two vLLM servers with the smallest model of the catalogue."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.colocation.real_system import MODEL, bare_engine
from benchmarks.gateway.affinity import affinity
from benchmarks.gateway.http_client import HttpTarget
from benchmarks.gateway.installation import CHAT, installation
from benchmarks.gateway.latency import added, first_tokens
from benchmarks.harness import Testbed, say

ENGINES = 2
SLOTS = 16


def measured(testbed: Testbed, quick: bool) -> dict[str, Any]:
    """The figures. All keys begin with `real_`."""
    # `installation` runs event loops itself, so none may be running here.
    with asyncio.Runner() as runner:
        engines = AsyncExitStack()
        try:
            return {f"real_{key}": value for key, value in _measured(testbed, quick, runner, engines).items()}
        finally:
            runner.run(engines.aclose())


def _measured(testbed: Testbed, quick: bool, runner: asyncio.Runner, engines: AsyncExitStack) -> dict[str, Any]:
    urls = []
    for number in range(ENGINES):
        say(f"starting vLLM {number + 1} of {ENGINES} …")
        engine = bare_engine(testbed.folder / f"vllm-{number}", MODEL, policy="priority")
        urls.append(runner.run(engines.enter_async_context(engine)))
    with installation(testbed, urls[:1], SLOTS) as installed:
        routes = {"direct": HttpTarget(urls[0] + CHAT), "gateway": installed.chat}
        found = added(runner.run(first_tokens(routes, 2 if quick else 40, 2)))
    with installation(testbed, urls, SLOTS) as installed:
        turns, conversations = ((2,), 4) if quick else ((2, 4, 8), 24)
        found |= runner.run(affinity(installed.chat, turns, conversations, pause=2.0))
    return {"ttft_requests_s": 2, **found, "engines": f"{ENGINES} vLLM for CPU, {MODEL}"}
