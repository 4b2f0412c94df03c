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
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

import uvloop

from benchmarks.console import accessibility, beside, live, pages, traces
from benchmarks.harness import Testbed, open_testbed, say
from benchmarks.machine import describe


@dataclass(frozen=True)
class ConsoleSizes:
    """Sizes of all arms."""

    items: int = 50_000
    pairs: int = 5
    batches: int = 10_000
    stored_items: int = 1_000_000
    page_rounds: int = 40
    changes: int = 100
    drain_items: int = 200_000
    drain_pairs: int = 12
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
    """Run all arms, or those that --only names."""
    table = arms(QUICK if options.quick else ConsoleSizes())
    wanted = options.only.split(",") if options.only else list(table)
    if unknown := set(wanted) - set(table):
        raise SystemExit(f"unknown arm: {', '.join(sorted(unknown))}; choose from {', '.join(table)}")
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    began, loads, seconds = monotonic(), {}, {}
    found: dict[str, Any] = {"benchmark": "console", "quick": options.quick}
    with open_testbed(options.database_url) as testbed:
        for name in wanted:
            started = monotonic()
            loads[name] = round(os.getloadavg()[0], 2)
            say(f"{name} …")
            found |= table[name](testbed)
            testbed.clear()
            seconds[name] = round(monotonic() - started, 1)
    ends = {"load_average_at_start": loads, "seconds_by_arm": seconds, "seconds": round(monotonic() - began)}
    return {**found, **ends, "machine": describe()}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--only", help="arms, separated by commas")
    parser.add_argument(
        "--json", action="store_true", help="one line of JSON, which is also what is printed without it"
    )
    parser.add_argument("--database-url", default="", help="a PostgreSQL server to use instead of an embedded one")
    options = parser.parse_args()
    found = run(options)
    print(json.dumps(found, indent=None if options.json else 2), flush=True)


if __name__ == "__main__":
    main()
