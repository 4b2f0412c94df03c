"""Claims about how many chunks a worker takes at once, and how much it holds."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.settings import Settings
from workers.gpu.admission import Admission
from workers.gpu.claimer import Claimer
from workers.gpu.open_chunk import OpenChunks
from workers.gpu.tuning import TUNING


class Started:
    """As much of an `Admission` as a claim's size needs: an engine that has started so many items lately."""

    def __init__(self, items: int) -> None:
        self._items = items

    def started_within(self, seconds: float) -> int:
        return self._items


def size(settings: Settings, started: int, last_items: int) -> int:
    admission: Any = Started(started)
    database: Any = None
    claimer = Claimer(settings, database, OpenChunks(), admission, lambda *_: None)
    claimer._last_items = last_items
    return claimer._size()


@pytest.mark.parametrize(("started", "expected"), [(0, 1), (100, 1), (400, 2), (1_000, 4), (100_000, 4)])
def test_a_claim_is_of_about_two_seconds_of_the_engines_work(settings: Settings, started: int, expected: int) -> None:
    assert size(settings, started, 64) == expected


def test_the_first_claim_takes_one_chunk(settings: Settings) -> None:
    assert size(settings, 100_000, 0) == 1


@pytest.mark.parametrize(("waiting", "claims"), [(0, True), (3, True), (4, False), (500, False)])
def test_a_worker_claims_more_only_while_less_waits_in_it_than_half_of_what_it_may_run(
    waiting: int, claims: bool
) -> None:
    chunks: Any = SimpleNamespace(pending=waiting, values=tuple)
    runner: Any = None
    admission = Admission(chunks, runner, TUNING)
    admission.limit(8, prefill_tokens=0, sync_idle=True)
    assert admission.hungry is claims
    admission.limit(0, prefill_tokens=0, sync_idle=True)
    assert not admission.hungry, "with a closed gate it claims nothing"
