"""Arm: the same batch through each service in turn, on an engine whose slots each may fill."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from time import monotonic
from typing import Any, Protocol

from openai import OpenAI

from benchmarks.harness import Testbed, say
from benchmarks.openai_batch import aibrix, lines, slackwater_service
from benchmarks.openai_batch.slot_engine import SECONDS, SlotEngine, engine, output, submit, until_final

LINE_BYTES = 400
WARM = 20  # lines of the warm-up batch
PATIENCE_SECONDS = 300.0


class Service(Protocol):
    """A batch API on an engine. The process that runs its requests can be killed."""

    @property
    def client(self) -> OpenAI:
        """OpenAI's client of this service."""

    @property
    def extra(self) -> Mapping[str, object]:
        """Fields of a create beside OpenAI's."""

    def start(self) -> None:
        """Start that process. Returns when it is ready."""

    def kill(self) -> None:
        """Send SIGKILL to that process."""

    def stored(self, batch_id: str) -> set[str] | None:
        """Custom ids of durable results; None if they cannot be read."""


OURS, SHIPPED, PEER = "ours", "ours_measured", "aibrix"


@contextlib.contextmanager
def opened(testbed: Testbed, name: str, slots: int) -> Iterator[tuple[SlotEngine, Service]]:
    """Run the service on a fresh engine, and a warm-up batch.

    `ours` keeps all slots full (`headroom=static`), as AIBrix does. `ours_measured` has the default headroom control.
    """
    with engine(slots) as fake, contextlib.ExitStack() as stack:
        service: Service
        if name == PEER:
            service = stack.enter_context(aibrix.service(testbed.folder, fake.url, slots))
        else:
            headroom = "static" if name == OURS else "measured"
            service = stack.enter_context(slackwater_service.installation(testbed, fake.url, slots, headroom=headroom))
        content = lines.write(testbed.folder / "warm.jsonl", WARM, LINE_BYTES, first=900_000)
        _answered(service, submit(service.client, content, **service.extra).id, WARM)
        yield fake, service
    testbed.clear()


def throughput(testbed: Testbed, count: int, slots: int, rounds: int, names: Sequence[str]) -> dict[str, Any]:
    """Median requests per second, from the first byte of the upload to the poll that shows the end."""
    content = lines.write(testbed.folder / f"requests-{count}.jsonl", count, LINE_BYTES)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            with opened(testbed, name, slots) as (_, service):
                began = monotonic()
                answered = _answered(service, submit(service.client, content, **service.extra).id, count)
                rates[name].append(answered / (monotonic() - began))
            say(f"{name}, {slots} slots: {rates[name][-1]:,.0f} requests/s")
    figures: dict[str, Any] = {f"{name}_req_s": round(median(each), 1) for name, each in rates.items()}
    figures |= {f"{name}_req_s_samples": [round(rate, 1) for rate in each] for name, each in rates.items()}
    if PEER in names:
        figures["times_aibrix"] = round(figures[f"{OURS}_req_s"] / figures[f"{PEER}_req_s"], 2)
    return {**figures, "slots": slots, "requests": count, "engine_limit_req_s": round(slots / SECONDS)}


def _answered(service: Service, batch_id: str, count: int) -> int:
    found = until_final(service.client, batch_id, PATIENCE_SECONDS)
    answered = len(output(service.client, found)) if found else 0
    if answered != count:
        raise SystemExit(f"{answered} of {count} requests were answered: {found}")
    return answered
