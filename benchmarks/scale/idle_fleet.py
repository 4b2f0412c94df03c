"""What a fleet without work costs the database."""

from time import monotonic, sleep
from typing import Any

from benchmarks.harness import open_testbed, part, say
from benchmarks.scale import fleet

SETTLING_SECONDS = 20.0  # until every worker has heard how many there are


def idle_fleet(engines: int, seconds: float) -> dict[str, Any]:
    """`idle_claims_s`: claims a second of all workers. `idle_server_cpu`: cores that PostgreSQL uses, with a steward."""
    with open_testbed("") as testbed:
        url = testbed.database()
        settings = testbed.settings(url)
        with part(settings, "workers.steward"), fleet.running(url, engines, item_seconds=1.0) as workers:
            sleep(SETTLING_SECONDS)
            began, claims, used = monotonic(), workers.claims, fleet.server_cpu_seconds(url)
            sleep(seconds)
            claims, used = workers.claims - claims, fleet.server_cpu_seconds(url) - used
            took = monotonic() - began
    found = {"idle_claims_s": round(claims / took, 1), "idle_server_cpu": round(used / took, 4)}
    say(f"idle_fleet: {engines} engines, {found}")
    return {**found, "idle_engines": engines}
