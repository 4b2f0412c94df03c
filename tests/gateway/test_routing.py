"""Claims about the choice of the engine for a request."""

from collections import Counter

import pytest

from app import clock
from app.gateway.routing import AVOIDED_SECONDS, FEW, PREFERRED, Balance, Fleet

NAMES = [f"engine-{i}" for i in range(5)]
FLEET = Fleet(dict.fromkeys(NAMES, 32))


def order(balance: Balance, session: str | None, fleet: Fleet = FLEET) -> list[str]:
    """The engines that a request would try one after the other."""
    found: list[str] = []
    while (name := balance.choose(fleet, session, found)) is not None:
        found.append(name)
    return found


def test_the_engine_with_fewest_open_requests_comes_first() -> None:
    balance = Balance()
    for name, n in zip(NAMES, (3, 1, 4, 2, 5), strict=True):
        for _ in range(n):
            balance.enter(name)
    assert order(balance, None) == ["engine-1", "engine-3", "engine-0", "engine-2", "engine-4"]
    balance.leave("engine-0")
    balance.leave("engine-0")
    balance.leave("engine-0")
    assert balance.choose(FLEET, None) == "engine-0"


def test_an_engine_with_twice_the_slots_takes_twice_the_requests() -> None:
    balance, fleet = Balance(), Fleet({"large": 64, "small": 32})
    for _ in range(48):
        balance.enter(balance.choose(fleet, None) or "")
    assert balance.open == {"large": 32, "small": 16}


def test_equals_take_turns() -> None:
    balance = Balance()
    served = []
    for _ in range(10):
        first = balance.choose(FLEET, None) or ""
        balance.enter(first)
        balance.leave(first)
        served.append(first)
    assert served == NAMES * 2


def test_an_engine_without_room_is_never_chosen() -> None:
    balance, fleet = Balance(), Fleet(dict.fromkeys(NAMES, 1))
    for name in NAMES:
        assert balance.choose(fleet, "session") is not None
        balance.enter(name)
    assert balance.choose(fleet, "session") is None
    assert balance.choose(fleet, None) is None


def test_a_session_stays_and_only_those_of_a_lost_engine_move() -> None:
    balance = Balance()
    sessions = [f"session {i}" for i in range(200)]
    before = {session: order(balance, session) for session in sessions}
    turned = Fleet(dict.fromkeys(reversed(NAMES), 32))
    assert {session: order(balance, session, turned) for session in sessions} == before
    assert {found[0] for found in before.values()} == set(NAMES)
    without = Fleet({name: 32 for name in NAMES if name != "engine-2"})
    for session, found in before.items():
        assert order(balance, session, without) == [name for name in found if name != "engine-2"]


def test_sessions_spread_over_a_thousand_engines_and_the_next_list_has_the_same_ring() -> None:
    fleet = Fleet(dict.fromkeys([f"engine-{i}" for i in range(1000)], 32))
    balance, sessions = Balance(), [f"session {i}" for i in range(20_000)]
    found = {session: balance.choose(fleet, session) for session in sessions}
    shares = Counter(found.values())
    assert len(shares) > 990
    assert max(shares.values()) < 4 * 20
    again = Fleet(dict.fromkeys(fleet.slots, 64), fleet)
    assert again._places is fleet._places
    assert {session: balance.choose(again, session) for session in sessions} == found


def test_a_session_leaves_an_engine_that_has_a_quarter_more_than_its_share_and_comes_back() -> None:
    balance = Balance()
    first, second, *_ = order(balance, "session")
    for name in NAMES:
        for _ in range(FEW):
            balance.enter(name)
    balance.enter(first)
    balance.enter(first)
    assert balance.choose(FLEET, "session") == first
    balance.enter(first)
    found = order(balance, "session")
    assert (found[0], found[-1]) == (second, first)
    balance.leave(first)
    assert balance.choose(FLEET, "session") == first


def test_a_session_stays_while_its_engine_has_few_requests_though_the_others_have_none() -> None:
    balance = Balance()
    first, second, *_ = order(balance, "session")
    for _ in range(FEW - 1):
        balance.enter(first)
    assert balance.choose(FLEET, "session") == first
    balance.enter(first)
    assert balance.choose(FLEET, "session") == second


def test_a_session_whose_preferred_engines_are_full_goes_where_there_is_room() -> None:
    balance, fleet = Balance(), Fleet(dict.fromkeys([f"engine-{i}" for i in range(2 * PREFERRED)], 1))
    full = [name for name, _ in zip(fleet.walk("session"), range(PREFERRED), strict=False)]
    for name in full:
        balance.enter(name)
    chosen = balance.choose(fleet, "session")
    assert chosen is not None
    assert chosen not in full


def test_an_engine_that_could_not_be_reached_comes_last_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    balance = Balance()
    balance.avoid("engine-0")
    assert order(balance, None) == [*NAMES[1:], "engine-0"]
    assert order(balance, "session")[-1] == "engine-0"
    now += AVOIDED_SECONDS
    assert balance.choose(FLEET, None) == "engine-0"
