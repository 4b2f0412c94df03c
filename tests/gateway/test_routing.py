"""Claims about the choice of the engine for a request."""

import pytest

from app import clock
from app.gateway.routing import AVOIDED_SECONDS, FEW, Balance

NAMES = [f"engine-{i}" for i in range(5)]
SLOTS = dict.fromkeys(NAMES, 32)


def test_the_engine_with_fewest_open_requests_comes_first() -> None:
    balance = Balance()
    for name, n in zip(NAMES, (3, 1, 4, 2, 5), strict=True):
        for _ in range(n):
            balance.enter(name)
    assert balance.order(SLOTS, None) == ["engine-1", "engine-3", "engine-0", "engine-2", "engine-4"]
    balance.leave("engine-0")
    balance.leave("engine-0")
    balance.leave("engine-0")
    assert balance.order(SLOTS, None)[0] == "engine-0"


def test_an_engine_with_twice_the_slots_takes_twice_the_requests() -> None:
    balance, slots = Balance(), {"large": 64, "small": 32}
    for _ in range(48):
        balance.enter(balance.order(slots, None)[0])
    assert balance.open == {"large": 32, "small": 16}


def test_equals_take_turns() -> None:
    balance = Balance()
    served = []
    for _ in range(10):
        [first, *_] = balance.order(SLOTS, None)
        balance.enter(first)
        balance.leave(first)
        served.append(first)
    assert served == NAMES * 2


def test_a_session_stays_and_only_those_of_a_lost_engine_move() -> None:
    balance = Balance()
    sessions = [f"session {i}" for i in range(200)]
    before = {session: balance.order(SLOTS, session) for session in sessions}
    assert {session: balance.order(dict.fromkeys(reversed(NAMES), 32), session) for session in sessions} == before
    assert {order[0] for order in before.values()} == set(NAMES)
    for session, order in before.items():
        assert balance.order({name: 32 for name in NAMES if name != "engine-2"}, session) == [
            name for name in order if name != "engine-2"
        ]


def test_a_session_leaves_an_engine_that_has_a_quarter_more_than_its_share_and_comes_back() -> None:
    balance = Balance()
    first, second, *_ = balance.order(SLOTS, "session")
    for name in NAMES:
        for _ in range(FEW):
            balance.enter(name)
    balance.enter(first)
    balance.enter(first)
    assert balance.order(SLOTS, "session")[0] == first
    balance.enter(first)
    order = balance.order(SLOTS, "session")
    assert (order[0], order[-1]) == (second, first)
    balance.leave(first)
    assert balance.order(SLOTS, "session")[0] == first


def test_a_session_stays_while_its_engine_has_few_requests_though_the_others_have_none() -> None:
    balance = Balance()
    first, second, *_ = balance.order(SLOTS, "session")
    for _ in range(FEW - 1):
        balance.enter(first)
    assert balance.order(SLOTS, "session")[0] == first
    balance.enter(first)
    assert balance.order(SLOTS, "session")[0] == second


def test_an_engine_that_could_not_be_reached_comes_last_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    balance = Balance()
    balance.avoid("engine-0")
    assert balance.order(SLOTS, None) == [*NAMES[1:], "engine-0"]
    assert balance.order(SLOTS, "session")[-1] == "engine-0"
    now += AVOIDED_SECONDS
    assert balance.order(SLOTS, None)[0] == "engine-0"
