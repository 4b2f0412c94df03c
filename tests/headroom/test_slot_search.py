"""How many requests an engine runs at once is found out, with few of ours waiting in it."""

from dataclasses import replace

import pytest

from app.headroom.engine_metrics import EngineGauges
from app.headroom.signals import Scrape
from app.headroom.slot_search import FIRST, MOST, SlotSearch

RESERVE = 2
GAUGES = EngineGauges(0, 0, 0.1, 0, 0, 0)


class Engine:
    """Runs so many requests at once. We give it what the search allows, of `demand` requests; `callers` come first."""

    def __init__(self, slots: int, demand: int = 1000, callers: int = 0) -> None:
        self.slots, self.demand, self.callers = slots, demand, callers
        self.now, self.waited = 0.0, 0
        self.search = SlotSearch()

    def scrapes(self, count: int, **gauges: float) -> None:
        for _ in range(count):
            self.now += 0.5
            usable = self.search.slots - RESERVE
            own = max(0, min(self.demand, usable - self.callers))
            running = min(self.slots, own + self.callers)
            waiting = own + self.callers - running
            self.waited = max(self.waited, waiting)
            shown = replace(GAUGES, running=running, waiting=waiting, **gauges)
            self.search = self.search.seen(Scrape(shown, self.now, own), reserve=RESERVE, kv_ceiling=0.9)


@pytest.mark.parametrize("slots", [1, 2, 4, 8, 12, 16, 32, 60, 100, 200])
def test_the_slots_of_an_engine_are_found_and_not_left(slots: int) -> None:
    engine = Engine(slots)
    engine.scrapes(3600)
    assert engine.search.found == slots
    assert engine.search.sure
    assert engine.waited <= max(FIRST, 0.25 * slots + 1)


def test_the_longer_it_is_known_the_rarer_do_ours_wait() -> None:
    engine = Engine(16)
    engine.scrapes(1200)
    waits = [0, 0]
    for hour in range(2):
        for _ in range(7200):
            engine.waited = 0
            engine.scrapes(1)
            waits[hour] += engine.waited > 0
    assert waits[1] <= waits[0]
    assert waits[1] < 0.01 * 7200


def test_an_engine_with_as_many_as_usual_gets_them_within_seconds() -> None:
    engine = Engine(MOST)
    engine.scrapes(20)
    assert engine.search.slots == MOST
    assert engine.waited == 0


def test_little_work_makes_the_number_no_larger() -> None:
    engine = Engine(MOST, demand=3)
    engine.scrapes(1000)
    assert engine.search.slots == FIRST


def test_what_callers_show_is_learned_too() -> None:
    engine = Engine(64, demand=0, callers=40)
    engine.scrapes(1)
    assert engine.search.slots == 40


def test_requests_that_wait_for_memory_or_for_a_moment_say_nothing_of_slots() -> None:
    engine = Engine(16)
    engine.scrapes(100, kv_usage=0.95)
    assert engine.search.found == 0
    search = SlotSearch(slots=40)
    for running in range(5, 35):  # a burst that is taken in
        search = search.seen(
            Scrape(replace(GAUGES, running=running, waiting=35 - running), running, 20), reserve=2, kv_ceiling=0.9
        )
    assert search.slots == 40


def test_an_engine_that_came_back_larger_is_found_larger() -> None:
    engine = Engine(16)
    engine.scrapes(200)
    engine.slots = 64
    engine.scrapes(3600)
    assert engine.search.found == 64


def test_a_number_of_the_settings_is_believed_until_the_engine_was_twice_seen_to_run_fewer() -> None:
    engine = Engine(16)
    engine.search = SlotSearch.of(256)
    engine.scrapes(4)
    assert (engine.search.slots, engine.search.found, engine.search.contradicts) == (256, 16, False)
    engine.scrapes(6)
    assert engine.search.contradicts
    engine.scrapes(3600)
    assert engine.search.found == 16
    right = Engine(64)
    right.search = SlotSearch.of(64)
    right.scrapes(3600)
    assert (right.search.slots, right.search.contradicts) == (64, False)


def test_what_runs_for_a_moment_while_slots_change_hands_is_not_taken_for_the_limit() -> None:
    search, found = SlotSearch(slots=24), set()
    for look in range(400):
        running = 16 - (look % 3 != 0)  # most scrapes see one that has ended and whose successor still waits
        shown = replace(GAUGES, running=running, waiting=2)
        search = search.seen(Scrape(shown, look * 0.15, running), reserve=RESERVE, kv_ceiling=0.9)
        found.add(search.found)
    assert found == {0, 16}


def test_a_step_that_takes_longer_than_several_scrapes_says_nothing_of_slots() -> None:
    """Requests wait for their prefill: with each step, two of them begin to run."""
    search, now = SlotSearch.of(16), 0.0
    for _ in range(20):  # batches of work
        for step in range(1, 6):
            for _ in range(5):
                now += 0.15
                shown = replace(GAUGES, running=6 + 2 * step, waiting=10 - 2 * step, generation_tokens=100 * step)
                search = search.seen(Scrape(shown, now, 10), reserve=RESERVE, kv_ceiling=0.9)
    assert (search.found, search.slots) == (0, 16)


def test_a_finding_that_an_engine_has_outgrown_is_forgotten() -> None:
    engine = Engine(8)
    engine.search = SlotSearch.of(16)
    engine.scrapes(600)
    assert engine.search.contradicts
    engine.slots, engine.callers = 16, 12
    engine.scrapes(1)
    assert (engine.search.contradicts, engine.search.found) == (False, 0)
    engine.callers = 0
    engine.scrapes(60)
    assert engine.search.slots == 16
