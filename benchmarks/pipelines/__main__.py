"""What pipelines and conversations cost, and what they save, on this machine.

    python -m benchmarks.pipelines --json [--quick] [--only ARM[,ARM…]]

handoff       how long a stored result waits, on an idle system, until a worker has the item that is made of it
flush         what the marker of a batch that feeds costs the server, in processor time and WAL
feed          how fast the steward's feeder makes children
three_models  a pipeline of three stages with an engine each, against batches that a caller chains by hand
one_model     the same with one full engine
cached_share  how much of a second stage is in the prefix cache, against by hand, where the documents are beyond the cache
kills         pipelines and conversations under real kills: what is lost, doubled, or made of something else
turns         what a conversation costs its turns, in the process and until the first token

The engines are fakes with fixed delays; API, workers, steward and PostgreSQL are the real ones. Progress goes to stderr, after
the load average. The last line of stdout is one JSON object.
"""

import argparse
import json
import os
from collections.abc import Callable
from time import monotonic
from typing import Any

from benchmarks.harness import say
from benchmarks.machine import describe
from benchmarks.pipelines import cached_share, feeding, flush_cost, handoff_idle, kills, speedup
from benchmarks.pipelines.turns import turns


def arms(*, quick: bool) -> dict[str, Callable[[], dict[str, Any]]]:
    """All arms by name, in the order in which they run."""
    few: dict[str, Any] = {"items": 120, "pairs": 1, "poll_seconds": 0.5} if quick else {}
    return {
        "handoff": lambda: handoff_idle.handoff_idle(pipelines=2 if quick else 60),
        "flush": lambda: flush_cost.flush_cost(**{"items": 1280, "rounds": 1} if quick else {}),
        "feed": lambda: feeding.feed(items=500 if quick else 20_000),
        "three_models": lambda: speedup.three_models(**few),
        "one_model": lambda: speedup.one_model(**few),
        "cached_share": lambda: cached_share.cached_share(
            **{"documents": 96, "kept": 24, "slots": 4, "chunk_items": 4, "flush_items": 2} if quick else {}
        ),
        "kills": lambda: kills.kills(**{"seeds": 1, "seconds": 6} if quick else {}),
        "turns": lambda: turns(count=20 if quick else 500),
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run all arms, or those that --only names."""
    table = arms(quick=options.quick)
    wanted = options.only.split(",") if options.only else list(table)
    if unknown := set(wanted) - set(table):
        raise SystemExit(f"unknown arm: {', '.join(sorted(unknown))}; choose from {', '.join(table)}")
    began, loads, spent = monotonic(), {}, {}
    found: dict[str, Any] = {"benchmark": "pipelines", "quick": options.quick}
    for name in wanted:
        loads[name] = round(os.getloadavg()[0], 2)
        say(f"{name} …")
        before = monotonic()
        found |= table[name]()
        spent[name] = round(monotonic() - before)
    return {
        **found,
        "load_average_at_start": loads,
        "seconds_by_arm": spent,
        "seconds": round(monotonic() - began),
        "machine": describe(),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", action="store_true", help="accepted in all benchmarks; stdout is always one JSON line"
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes; checks that the benchmark works, the figures mean nothing"
    )
    parser.add_argument("--only", default="", help="run only these arms, separated by commas")
    print(json.dumps(run(parser.parse_args())))


if __name__ == "__main__":
    main()
