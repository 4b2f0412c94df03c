"""What traces and the console cost, on this machine, and how fast the console is.

    python -m benchmarks.console --json [--quick] [--only ARM[,ARM…]] [--database-url postgresql://…]

pages    what a browser loads for the first page; the time of every page and of its slowest statement, with 10,000 batches and
         a million items
live     from the commit of a change to its arrival at open pages, on the same installation
drain    a worker's drain with 50 open consoles beside one without, in pairs
ttft     the time to the first token through the gateway with 50 open consoles and without, in pairs
axe      what axe-core finds on every page, in both themes and at every width
traces   spans of 50,000 items, and a worker's drain with traces beside one without, in pairs

The console is a process of its own, `slackwater console`. Progress goes to stderr, after the load average. The last line of
stdout is one JSON object.
"""

import argparse
import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import uvloop

from benchmarks import command
from benchmarks.console import accessibility, beside, live, pages, traces
from benchmarks.harness import Testbed, open_testbed


@dataclass(frozen=True)
class ConsoleSizes:
    """Sizes of all arms."""

    items: int = 25_000
    pairs: int = 4
    batches: int = 10_000
    stored_items: int = 1_000_000
    page_rounds: int = 20
    changes: int = 50
    drain_items: int = 100_000
    drain_pairs: int = 6
    consoles: int = 50
    ttft_rounds: int = 4
    themes: int = 2
    widths: int = 3


QUICK = ConsoleSizes(4000, 1, 1000, 20_000, 3, 10, 4000, 1, 50, 1, 1, 1)


def arms(sizes: ConsoleSizes) -> dict[str, Callable[[Testbed], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    stored = sizes.batches, sizes.stored_items
    return {
        "pages": lambda testbed: pages.pages(testbed, *stored, sizes.page_rounds),
        "live": lambda testbed: live.live(testbed, *stored, sizes.changes, sizes.consoles),
        "drain": lambda testbed: beside.drain(testbed, sizes.drain_items, sizes.drain_pairs, sizes.consoles),
        "ttft": lambda testbed: beside.ttft(testbed, sizes.ttft_rounds, sizes.pairs, sizes.consoles),
        "axe": lambda testbed: accessibility.accessibility(sizes.themes, sizes.widths),
        "traces": lambda testbed: traces.drains(testbed, sizes.items, sizes.pairs),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The wanted arms on one server."""
    table = arms(QUICK if options.quick else ConsoleSizes())
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    with open_testbed(options.database_url) as testbed:
        return command.in_turn(table, options.arms, testbed, after=testbed.clear)


if __name__ == "__main__":
    command.main("console", __doc__, run, minutes=20, arms=arms(QUICK), database=True)
