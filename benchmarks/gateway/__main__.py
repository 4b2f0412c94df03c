"""The latency that the gateway adds to synchronous requests on this machine, compared with no proxy and with another proxy.

    python -m benchmarks.gateway --json [--quick] [--real] [--only ARM[,ARM…]] [--database-url postgresql://…]

ttft       time to the first token at 50 requests/s: directly, through one API process, and through the other proxy, in turns
throughput whole answers per second with 32 callers
streams    200 streams at once, and whether events are held back until a later one
polls      status polls at fixed rates up to 2,000/s, with 3,000 batches in the queue
affinity   prefix-cache hit rate on two engines with session affinity and by least load, for 2, 4 and 8 turns

The engines are fakes with fixed delays and a simulated prefix cache. `--real` adds `real_…` keys for ttft and affinity,
measured on two vLLM servers with the smallest model of the catalogue. Progress goes to stderr, after the load average. The
last line of stdout is one JSON object.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks import command
from benchmarks.gateway import polls, real_engines, vllm_router
from benchmarks.gateway.affinity import affinity
from benchmarks.gateway.http_client import HttpTarget
from benchmarks.gateway.installation import CHAT, installation, timed_engine
from benchmarks.gateway.latency import added, first_tokens, throughput
from benchmarks.gateway.streams import streams
from benchmarks.harness import Testbed, open_testbed

TURNS = (2, 4, 8)
CACHE_BLOCKS = 100_000


@dataclass(frozen=True)
class GatewaySizes:
    """Sizes and durations of all arms."""

    rounds: int = 20
    rate: float = 50
    throughput_seconds: float = 10
    streams: int = 200
    stream_tokens: int = 60
    batches: int = 3000
    rates: tuple[float, ...] = (250, 500, 1000, 2000)
    poll_seconds: float = 10
    conversations: int = 200
    peer: bool = True  # whether the other proxy runs, too


QUICK = GatewaySizes(2, 50, 1, 20, 10, 100, (100, 250), 1, 20, peer=False)


def ttft(testbed: Testbed, sizes: GatewaySizes) -> dict[str, Any]:
    """Time to the first token, also through the other proxy if it can be installed."""
    with (
        timed_engine(latency=0.03, token_seconds=0.01, answer_tokens=4) as engine,
        installation(testbed, [engine]) as installed,
        vllm_router.router(engine) if sizes.peer else contextlib.nullcontext() as router,
    ):
        routes = {"direct": HttpTarget(engine + CHAT), "gateway": installed.chat}
        routes |= {"peer": router} if router else {}
        found = added(asyncio.run(first_tokens(routes, sizes.rounds, sizes.rate)))
    known = {"peer": vllm_router.NAME, "peer_version": vllm_router.VERSION} if router else {"peer": None}
    return {"ttft_requests_s": sizes.rate, **found, **known}


def whole(testbed: Testbed, sizes: GatewaySizes) -> dict[str, Any]:
    """Throughput with an engine that answers at once."""
    with timed_engine(answer_tokens=4) as engine, installation(testbed, [engine]) as installed:
        routes = {"direct": HttpTarget(engine + CHAT), "gateway": installed.chat}
        return asyncio.run(throughput(routes, sizes.throughput_seconds))


def held(testbed: Testbed, sizes: GatewaySizes) -> dict[str, Any]:
    """Streams of ten tokens per second."""
    delays = {"latency": 0.1, "token_seconds": 0.1, "answer_tokens": sizes.stream_tokens}
    with timed_engine(**delays) as engine, installation(testbed, [engine]) as installed:
        routes = {"direct": HttpTarget(engine + CHAT), "gateway": installed.chat}
        return asyncio.run(streams(routes, sizes.streams, sizes.stream_tokens))


def sessions(testbed: Testbed, sizes: GatewaySizes) -> dict[str, Any]:
    """Two engines with a simulated prefix cache that holds everything."""
    delays = {"latency": 0.02, "answer_tokens": 16, "cache_blocks": CACHE_BLOCKS}
    with (
        timed_engine(**delays) as one,
        timed_engine(**delays) as other,
        installation(testbed, [one, other]) as installed,
    ):
        found = asyncio.run(affinity(installed.chat, TURNS, sizes.conversations, pause=0.5))
    return {**found, "affinity_engines": "2 fakes with a simulated prefix cache", "affinity_cache_blocks": CACHE_BLOCKS}


def arms(sizes: GatewaySizes) -> dict[str, Callable[[Testbed], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    return {
        "ttft": lambda testbed: ttft(testbed, sizes),
        "throughput": lambda testbed: whole(testbed, sizes),
        "streams": lambda testbed: held(testbed, sizes),
        "polls": lambda testbed: polls.polls(testbed, sizes.batches, sizes.rates, sizes.poll_seconds),
        "affinity": lambda testbed: sessions(testbed, sizes),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The wanted arms on one server."""
    table = arms(QUICK if options.quick else GatewaySizes())
    table["real"] = lambda testbed: real_engines.measured(testbed, options.quick)
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    with open_testbed(options.database_url) as testbed:
        return command.in_turn(table, [*options.arms, *["real"] * options.real], testbed, after=testbed.clear)


def flags(parser: argparse.ArgumentParser) -> None:
    """What only this benchmark has."""
    parser.add_argument("--real", action="store_true", help="also measure two real vLLM engines")


if __name__ == "__main__":
    command.main("gateway", __doc__, run, minutes=6, arms=arms(QUICK), database=True, flags=flags)
