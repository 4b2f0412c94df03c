"""The command line that all benchmarks share, and how their arms run one after the other.

A benchmark is a module or a package of `benchmarks` that `python -m` runs. Progress goes to stderr, after the load average. The
last line of stdout is one JSON object.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from time import monotonic
from typing import Any

from benchmarks.harness import say
from benchmarks.machine import describe

Figures = dict[str, Any]


def main(
    name: str,
    doc: str | None,
    run: Callable[[argparse.Namespace], Figures],
    *,
    minutes: int,
    arms: Collection[str] = (),
    database: bool = False,
    flags: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
) -> None:
    """Parse the command line, run and print the figures. `minutes`: how long all arms take on two idle cores.

    `arms`: what --only may name; those wanted are in the options as `arms`. `database`: whether --database-url is understood.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: shows that it works, the figures mean nothing"
    )
    parser.add_argument("--json", action="store_true", help="accepted in all benchmarks; the last line is always JSON")
    if arms:
        parser.add_argument("--only", default="", help=f"only these arms, separated by commas: {', '.join(arms)}")
    if database:
        parser.add_argument("--database-url", default="", help="this PostgreSQL server instead of an embedded one")
    flags(parser)
    options = parser.parse_args()
    if arms:
        options.arms = options.only.split(",") if options.only else list(arms)
        if unknown := [each for each in options.arms if each not in arms]:
            parser.error(f"--only: {', '.join(unknown)}: not one of {', '.join(arms)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and engines are stopped
    say(f"{name}: about {minutes} minutes on two idle cores" if not options.quick else f"{name} --quick: a few minutes")
    began = monotonic()
    head = {"benchmark": name, "quick": options.quick}
    found = run(options)
    print(json.dumps({**head, **found, "seconds": round(monotonic() - began), "machine": describe()}), flush=True)


def in_turn(
    arms: Mapping[str, Callable[..., Figures]],
    wanted: Collection[str],
    *given: Any,
    after: Callable[[], None] = lambda: None,
) -> Figures:
    """The figures of the wanted arms, each called with what is given, with the load average before each and its seconds."""
    found, loads, seconds, notes = Figures(), {}, {}, list[str]()
    for name in wanted:
        loads[name] = round(os.getloadavg()[0], 2)
        say(f"{name} …")
        began = monotonic()
        figures = arms[name](*given)
        notes += figures.pop("notes", [])
        found |= figures
        after()
        seconds[name] = round(monotonic() - began, 1)
    noted = {"notes": notes} if notes else {}
    return {**found, **noted, "load_average_at_start": loads, "seconds_by_arm": seconds}
