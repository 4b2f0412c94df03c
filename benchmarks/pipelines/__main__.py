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
from collections.abc import Callable
from typing import Any

from benchmarks import command
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
    """The wanted arms."""
    return command.in_turn(arms(quick=options.quick), options.arms)


if __name__ == "__main__":
    command.main("pipelines", __doc__, run, minutes=18, arms=arms(quick=True))
