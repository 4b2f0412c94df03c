"""Arms `drain` and `ttft`: what 50 open consoles cost the queue and synchronous callers. Pairs with and without them, in turns.

With them, a `slackwater console` runs and serves 50 people, each with a session and an open page; the pages are all that have
live parts, and the process that reads the streams is another one. Everything shares the machine, so the processor time of the
readers counts against the product here. Without them there is no console.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from statistics import median
from time import monotonic
from typing import Any

import psycopg

from app.settings import Settings
from benchmarks.console.open_pages import PLAIN, open_pages, stream
from benchmarks.console.site import console
from benchmarks.gateway.http_client import HttpTarget
from benchmarks.gateway.installation import CHAT, installation, timed_engine
from benchmarks.gateway.latency import first_tokens
from benchmarks.harness import Testbed, cpu_seconds, part, say
from benchmarks.queue import drain as queue_drain
from benchmarks.queue.workload import WORKERS, fill
from benchmarks.statistics import interval, percentiles

_FLUSH_ROWS = 64
_ENGINE = {"latency": 0.03, "token_seconds": 0.01, "answer_tokens": 4}  # as in benchmarks.gateway
_RATE = 50.0  # requests per second, as there
_WAYS = ("with", "without")
# Of what is there now: the newest batch, and any engine.
_NEWEST = "select (select request_id from batch order by batch_id desc limit 1), (select name from engine limit 1)"


@contextlib.contextmanager
def _consoles(settings: Settings, count: int, shares: list[float]) -> Iterator[None]:
    """`count` open consoles; none: no console. Adds the share of a core that the console took meanwhile to `shares`."""
    if not count:
        yield
        return
    with console(settings) as site, open_pages(site, _live_pages(settings), count) as pages:
        began, spent = monotonic(), cpu_seconds(site.process.pid)
        yield
        shares.append((cpu_seconds(site.process.pid) - spent) / (monotonic() - began))
        say(f"{count} open pages: {shares[-1]:.1%} of a core, {pages.report()}")


def _live_pages(settings: Settings) -> list[str]:
    """The live parts of every page of which there is something to see."""
    with psycopg.connect(settings.database_url) as conn:
        batch, engine = conn.execute(_NEWEST).fetchone() or (None, None)
    own = [stream("batch", batch_id=batch)] if batch else []
    own += [stream("engine", name=engine)] if engine else []
    return [*map(stream, PLAIN), *own]


def drain(testbed: Testbed, items: int, pairs: int, consoles: int) -> dict[str, Any]:
    """The ratio of the rates at which four workers drain a batch, as in benchmarks.queue."""
    rates: dict[str, list[float]] = {way: [] for way in _WAYS}
    shares: list[float] = []
    settings = testbed.settings(testbed.database())
    with part(settings, "workers.steward"):
        for pair in range(pairs + 1):
            for way in _WAYS if pair % 2 == 0 else _WAYS[::-1]:
                pool_id = asyncio.run(fill(settings, items))
                with _consoles(settings, consoles if way == "with" else 0, shares):
                    seconds, _ = queue_drain.race(settings.database_url, pool_id, _FLUSH_ROWS)
                    queue_drain.settled(settings.database_url)
                say(
                    f"drain {way} {consoles} consoles: {items / seconds:,.0f} items/s{' (warm-up)' if not pair else ''}"
                )
                if pair:
                    rates[way].append(items / seconds)
    found = _compared("drain", [with_ / bare for with_, bare in zip(rates["with"], rates["without"], strict=True)])
    return found | {
        "drain_items_s_with_consoles": round(median(rates["with"])),
        "drain_items_s_without": round(median(rates["without"])),
        "drain_console_core_share": round(median(shares), 3),
        "drain_items": items,
        "drain_workers": WORKERS,
        "consoles": consoles,
    }


def ttft(testbed: Testbed, rounds: int, pairs: int, consoles: int) -> dict[str, Any]:
    """The ratio of the median times to the first token through the gateway, as in benchmarks.gateway."""
    turns: dict[str, list[list[float]]] = {way: [] for way in _WAYS}
    direct: dict[str, list[float]] = {way: [] for way in _WAYS}
    shares: list[float] = []
    with timed_engine(**_ENGINE) as engine, installation(testbed, [engine]) as installed:
        settings = testbed.settings(installed.database_url)
        routes = {"direct": HttpTarget(engine + CHAT), "gateway": installed.chat}
        for pair in range(pairs):
            for way in _WAYS if pair % 2 == 0 else _WAYS[::-1]:
                with _consoles(settings, consoles if way == "with" else 0, shares):
                    found = asyncio.run(first_tokens(routes, rounds, _RATE))
                turns[way].append([ms for turn in found["gateway"] for ms in turn])
                direct[way] += [ms for turn in found["direct"] for ms in turn]
                say(f"first token {way} {consoles} consoles: p50 {median(turns[way][-1]):.2f} ms")
    pooled = {way: percentiles([ms for run in turns[way] for ms in run]) for way in _WAYS}
    ratios = [median(with_) / median(bare) for with_, bare in zip(turns["with"], turns["without"], strict=True)]
    figures = _compared("ttft", ratios)
    for way, name in zip(_WAYS, ("with_consoles", "without"), strict=True):
        p50, p99 = pooled[way]
        added = p50 - median(direct[way])
        figures |= {f"ttft_p50_ms_{name}": round(p50, 2), f"ttft_p99_ms_{name}": round(p99, 2)}
        figures |= {f"added_ttft_p50_ms_{name}": round(added, 2)}
    return figures | {
        "ttft_console_core_share": round(median(shares), 3),
        "ttft_requests_s": _RATE,
        "ttft_samples": sum(map(len, turns["with"])),
        "consoles": consoles,
    }


def _compared(name: str, ratios: list[float]) -> dict[str, Any]:
    middle, low, high = interval(ratios)
    return {
        f"{name}_ratio_with_50_consoles": round(middle, 4),
        f"{name}_ratio_interval": [round(low, 4), round(high, 4)],
        f"{name}_ratio_samples": [round(ratio, 4) for ratio in ratios],
    }
