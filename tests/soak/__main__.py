"""Whether a whole installation stays as large as it is: `slackwater up` under a steady load, for an hour by default.

    python -m tests.soak --minutes 60 --json [--rate 40] [--plot soak.svg]

The engine is timed: it answers after a fixed time. After a warm-up of 15 minutes (of a quarter of a shorter run), the growth of
each series is a line through its readings, in percent an hour with a 95 % interval. The exit code is 1 if one surely grows by
more than --most, or if a request failed. What is small must surely grow by more than a floor as well: by a megabyte of the
queue's tables or of their indexes, a thousand dead rows, an open file of a part, a connection, a second of the oldest batch with
a leased chunk an hour. So a table of a few pages does not count as growing because it was last vacuumed early in the run.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from app.processes import free_port, keep_private
from benchmarks.machine import describe
from tests.soak.load import ITEMS, Load
from tests.soak.readings import Readings
from tests.soak.trend import Point, trend
from tests.system.stack import Stack, running
from tests.webhooks.support import receiving

WARM_UP_SECONDS = 900.0
READ_SECONDS = 5.0
LATENCY_SECONDS = 0.2
_COUNTED = ("kept_mb", "items_done", "chunks")  # they grow with the work, or follow its rhythm
FLOORS = {  # growth an hour that is none, by kind of series
    "hot_tables_mb": 1.0,
    "hot_indexes_mb": 1.0,
    "hot_dead_rows": 1000.0,
    "open_files": 1.0,
    "database_connections": 1.0,
    "oldest_leased_batch_s": 1.0,
}
Series = dict[str, list[Point]]


def main() -> int:
    """Run once; the last line of stdout is one JSON object with --json."""
    keep_private()
    options = _options()
    with receiving() as receiver, running(latency=LATENCY_SECONDS, **_usual()) as stack:
        stack.subscribe(receiver.url)
        series, counts = asyncio.run(soak(stack, options.minutes * 60, options.rate))
        delivered = len(receiver.requests)
    found = summary(series, dict(counts), options.minutes * 60, options.most)
    found |= {"webhooks": delivered, "rate": options.rate, "machine": describe()}
    if options.plot:
        from tests.soak.plot import plot

        plot(series, found, options.plot)
    print(json.dumps(found) if options.json else text(found), flush=True)
    return 0 if found["sound"] else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=40, help="items per second in batches; a tenth more are single")
    parser.add_argument("--most", type=float, default=1, help="growth in percent an hour that is allowed")
    parser.add_argument("--plot", type=Path, help="file for the figure: .svg or .png")
    parser.add_argument("--json", action="store_true", help="print one JSON object in the last line")
    return parser.parse_args()


def _usual() -> dict[str, Any]:
    """The timers of an installation as they ship (those of tests are faster), a fixed allowance, and a console."""
    timers = {"lease_seconds": 10, "heartbeat_seconds": 2, "steward_seconds": 0.2, "webhook_sweep_seconds": 2}
    static = {
        "headroom": "static",
        "batch_max_in_flight": 32,
    }  # the engine is a fake, whose steps tell a controller nothing
    return timers | static | {"console_port": free_port()}


async def soak(stack: Stack, seconds: float, rate: float) -> tuple[Series, dict[str, int]]:
    """The readings of a run, and what came of its requests."""
    assert stack.process
    load = Load(str(stack.client.base_url), stack.key, rate)
    begun = time.monotonic()
    sending = asyncio.create_task(load.run(begun + seconds))
    readings, series = Readings(stack.settings, stack.process.pid), defaultdict[str, list[Point]](list)
    try:
        while (at := time.monotonic() - begun) < seconds:
            for name, value in (await asyncio.to_thread(readings.read)).items():
                series[name].append((at, value))
            if len(series["chunks"]) % 12 == 0:
                print(f"{at / 60:.0f} min: {dict(load.counts)}", file=sys.stderr, flush=True)
            await asyncio.sleep(max(0.0, READ_SECONDS - (time.monotonic() - begun - at)))
        await sending
    finally:
        sending.cancel()
        readings.close()
    return dict(series), dict(load.counts)


def summary(series: Series, counts: dict[str, int], seconds: float, most: float) -> dict[str, Any]:
    """The growth of each series after the warm-up; `grows` names those that surely grow by more than `most` percent an hour,
    and by more than the floor of their kind.
    """
    warm_up = min(WARM_UP_SECONDS, seconds / 4)
    trends = {}
    for name, points in sorted(series.items()):
        kept = [point for point in points if point[0] >= warm_up]
        if name not in _COUNTED and len(kept) >= 3:
            trends[name] = trend(kept)
    kept_bytes = {name: [value for at, value in series[name] if at >= warm_up] for name in ("kept_mb", "items_done")}
    grown, items = (values[-1] - values[0] for values in kept_bytes.values())
    grows = [name for name, found in trends.items() if found.grows(most, _floor(name))]
    failed = counts.get("refused", 0) + counts.get("single_failed", 0) + counts.get("polls_failed", 0)
    missing = counts.get("batches", 0) * ITEMS - counts.get("answers", 0)
    return {
        "minutes": round(seconds / 60, 1),
        "warm_up_minutes": round(warm_up / 60, 1),
        "growth_percent_an_hour": {
            name: {key: round(getattr(found, key), 2) for key in ("mean", "growth", "low", "high")}
            for name, found in trends.items()
        },
        "floors_an_hour": FLOORS,
        "kept_bytes_per_item": round(grown * 2**20 / items) if items else None,
        "grows": grows,
        "requests": counts,
        "failed": failed,
        "missing_answers": missing,
        "sound": not (grows or failed or missing),
    }


def _floor(series: str) -> float:
    return FLOORS.get(series.partition(".")[0], 0.0)


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    lines = [f"{'series':28}{'mean':>12}{'floor an hour':>16}{'% an hour':>12}   95 % interval"]
    for name, each in found["growth_percent_an_hour"].items():
        floor, interval = _floor(name) or "", f"{each['low']:.2f} … {each['high']:.2f}"
        lines.append(f"{name:28}{each['mean']:12,.1f}{floor:>16}{each['growth']:12.2f}   {interval}")
    lines.append(f"{found['requests']}, {found['kept_bytes_per_item']} bytes kept per item")
    return "\n".join([*lines, "grows: " + (", ".join(found["grows"]) or "nothing")])


if __name__ == "__main__":
    sys.exit(main())
