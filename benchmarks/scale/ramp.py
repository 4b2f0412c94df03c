"""How fast an idle fleet is at work after one large submit."""

from time import monotonic, sleep
from typing import Any

from benchmarks.harness import Api, api, open_testbed, part, say
from benchmarks.queue.workload import body
from benchmarks.scale import fleet

ITEMS_PER_CHUNK = 2 * fleet.SLOTS  # so that one chunk is all that an engine wants
LONGEST_SECONDS = 60.0


def ramp(engines: int) -> dict[str, Any]:
    """`ramp_1000_s`: seconds from the answer to a submit of one chunk for each engine until the last engine has claimed."""
    with open_testbed("") as testbed:
        url = testbed.database()
        settings = testbed.settings(url, chunk_items=ITEMS_PER_CHUNK)
        with (
            part(settings, "workers.steward"),
            api(settings) as (_, key),
            fleet.running(url, engines, item_seconds=LONGEST_SECONDS) as workers,
        ):
            sleep(10)
            sent = body(engines * ITEMS_PER_CHUNK)
            Api(settings, key).submit_lines(sent, len(sent))
            began = monotonic()
            while len(firsts := workers.firsts()) < engines and monotonic() - began < LONGEST_SECONDS:
                sleep(1)
    if len(firsts) < engines:
        raise SystemExit(f"{engines - len(firsts)} engines got no chunk within {LONGEST_SECONDS} s")
    moments = sorted(second - began for _, _, second in firsts)
    found = {"ramp_1000_s": round(moments[-1], 2), "ramp_half_s": round(moments[len(moments) // 2], 2)}
    say(f"ramp: {engines} engines, {found}")
    return {**found, "ramp_engines": engines}
