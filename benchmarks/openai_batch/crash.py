"""Arm: the process that runs the requests of a batch is killed in the middle (SIGKILL) and restarted."""

from collections import Counter
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from benchmarks.harness import Testbed, say
from benchmarks.openai_batch import lines
from benchmarks.openai_batch.services import LINE_BYTES, PATIENCE_SECONDS, opened
from benchmarks.openai_batch.slot_engine import RequestCounts, SlotEngine, output, submit, until_final


@dataclass(frozen=True)
class Faults:
    """Counts of requests. `lost`: without an answer. `duplicated`: with several. `reexecuted`: answered by the engine more than
    once. `begun_again`: begun by the engine more than once, also if the first attempt was cut off.
    """

    lost: int
    duplicated: int
    reexecuted: int
    begun_again: int

    @classmethod
    def of(cls, count: int, answers: Counter[str], seen: RequestCounts) -> "Faults":
        """Compute the counts from the output file and the log of the engine."""
        return cls(
            lost=count - len(answers),
            duplicated=answers.total() - len(answers),
            reexecuted=seen.answered.total() - len(seen.answered),
            begun_again=seen.begun.total() - len(seen.begun),
        )


def crash(testbed: Testbed, name: str, count: int, slots: int) -> dict[str, Any]:
    """Kill the service when half is answered, restart it at once, wait for the end, and count."""
    content = lines.write(testbed.folder / f"crash-{count}.jsonl", count, LINE_BYTES)
    with opened(testbed, name, slots) as (fake, service):
        before = fake.seen()
        batch = submit(service.client, content, **service.extra)
        _until_half(fake, before, count)
        service.kill()
        killed, at_kill, stored = monotonic(), fake.seen() - before, service.stored(batch.id)
        service.start()
        found = until_final(service.client, batch.id, PATIENCE_SECONDS)
        seconds = monotonic() - killed
        seen = fake.seen() - before
        faults = Faults.of(count, output(service.client, found) if found else Counter(), seen)
    status = found.status if found else "not final"
    say(f"{name}: {faults}, {status} {seconds:.1f} s after the kill")
    again = {each for each, times in seen.begun.items() if times > 1}
    figures = {
        "lost": faults.lost,
        "duplicated": faults.duplicated,
        "reexecuted": faults.reexecuted,
        "begun_again": faults.begun_again,
        "in_flight_at_kill": at_kill.begun.total() - at_kill.answered.total(),
        "answered_at_kill": at_kill.answered.total(),
        "stored_at_kill": None if stored is None else len(stored),
        "reexecuted_though_stored": None if stored is None else len(again & stored),
        "status_after_kill": status,
        "seconds_after_kill": round(seconds, 1),
    }
    return {f"{name}_{key}": value for key, value in figures.items()}


def _until_half(fake: SlotEngine, before: RequestCounts, count: int) -> None:
    deadline = monotonic() + PATIENCE_SECONDS
    while (fake.seen() - before).answered.total() < count / 2:
        if monotonic() > deadline:
            raise SystemExit("half of the batch was not answered in time")
        sleep(0.05)
