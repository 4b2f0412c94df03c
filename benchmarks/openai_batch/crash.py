"""Arms: a batch worked off as fast as the engine allows, and one in whose middle the service dies by SIGKILL."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Protocol

from openai import OpenAI

from benchmarks.openai_batch.ground import Engine, output, submit, until_final
from benchmarks.stage import say

PATIENCE_SECONDS = 300.0


class Service(Protocol):
    """A batch API on the engine, of which a part can be killed."""

    @property
    def name(self) -> str: ...
    @property
    def client(self) -> OpenAI: ...
    @property
    def extra(self) -> dict[str, object]:
        """What a create asks for beside OpenAI's fields."""

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def stored(self) -> set[str] | None:
        """Custom ids with a durable result; None where nobody can tell."""


@dataclass(frozen=True)
class Faults:
    """What became of the requests of a batch. `executed`: answered by the engine, begun and cut off not counted."""

    lost: int
    duplicated: int
    reexecuted: int
    reexecuted_begun: int

    @classmethod
    def of(cls, count: int, lines: Counter[str], begun: Counter[str], executed: Counter[str]) -> "Faults":
        """From the lines of the output file and the engine's log. Pure."""
        return cls(
            lost=count - len(lines),
            duplicated=lines.total() - len(lines),
            reexecuted=executed.total() - len(executed),
            reexecuted_begun=begun.total() - len(begun),
        )


def throughput(on: Engine, service: Service, content: Path, count: int) -> dict[str, Any]:
    """Requests a second from the create to the end that a poll shows, of a service that has just run another batch."""
    began = monotonic()
    batch = submit(service.client, content, **service.extra)
    found = until_final(service.client, batch.id, PATIENCE_SECONDS)
    seconds = monotonic() - began
    answered = len(output(service.client, found)) if found else 0
    if answered != count:
        raise SystemExit(f"{service.name} answered {answered} of {count}: {found}")
    say(f"{service.name}: {count / seconds:,.0f} requests/s")
    return {f"{service.name}_req_s": round(count / seconds, 1)}


def crash(on: Engine, service: Service, content: Path, count: int) -> dict[str, Any]:
    """Kill when half is answered, start again, and count."""
    before = on.seen()
    batch = submit(service.client, content, **service.extra)
    _until_half(on, before.answered.total(), count)
    service.kill()
    at_kill = on.seen()
    stored = service.stored()
    killed = monotonic()
    service.start()
    found = until_final(service.client, batch.id, PATIENCE_SECONDS)
    seconds = monotonic() - killed
    lines = output(service.client, found) if found else Counter[str]()
    after = on.seen()
    faults = Faults.of(count, lines, after.begun - before.begun, after.answered - before.answered)
    status = found.status if found else "not final"
    say(f"{service.name}: {faults}, {status} {seconds:.1f} s after the kill")
    again = {each for each, times in (after.begun - before.begun).items() if times > 1}
    cut = (at_kill.begun - before.begun).total() - (at_kill.answered - before.answered).total()
    figures = {
        "lost": faults.lost,
        "duplicated": faults.duplicated,
        "reexecuted": faults.reexecuted,
        "begun_again": faults.reexecuted_begun,
        "in_flight_at_kill": cut,
        "reexecuted_though_stored": None if stored is None else len(again & stored),
        "status_after_kill": status,
        "seconds_after_kill": round(seconds, 1),
    }
    return {f"{service.name}_{key}": value for key, value in figures.items()}


def _until_half(on: Engine, before: int, count: int) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while on.seen().answered.total() - before < math.ceil(count / 2):
        if monotonic() > deadline:
            raise SystemExit("half of the batch was not answered in time")
        sleep(0.05)
