"""The order of the GPU track's cycles, what a resumed run has left, and what fits into the time."""

import pytest

from benchmarks.colocation.gpu_plan import ARMS, FCFS, MANAGED, PLAIN, Clock, counts, named, stretches, visits


def test_alone_cap_20_l1_and_l2_come_first():
    listed = visits(ARMS, 2, ())
    assert listed[:4] == [("sync_only", 1), ("static_20", 1), ("l1", 1), ("l2", 1)]
    assert len(listed) == len(set(listed)) == 2 * len(ARMS)
    assert {cycle for _, cycle in listed[: len(ARMS)]} == {1}


def test_neighbours_share_an_engine_and_take_turns():
    listed = visits(ARMS, 2, ())
    assert [engine for engine, _ in stretches(listed)] == [PLAIN, MANAGED, FCFS, PLAIN, MANAGED, FCFS, PLAIN]
    second = [arm for arm, cycle in listed if cycle == 2]
    assert second[:3] == ["l1", "static_20", "sync_only"]


def test_a_resumed_run_does_what_is_left():
    whole = visits(ARMS, 2, ())
    for cut in range(len(whole) + 1):
        left = visits(ARMS, 2, whole[:cut])
        assert set(left) == set(whole[cut:])
    assert counts(["l1", "l2"], whole[:3]) == {"l1": 1, "l2": 0}


def test_arms_by_the_names_of_the_original():
    assert named("alone,cap_20,flood,ungoverned") == ["sync_only", "static_20", "fifo", "batch_only"]
    assert named("") == list(ARMS)
    with pytest.raises(ValueError, match="no arm l3"):
        named("l1,l3")


def test_what_fits():
    clock = Clock(ends=100.0, cycle=30.0, start={PLAIN: 40.0}, up={PLAIN: 10.0})
    assert clock.fits(20.0, PLAIN, start=True, up=True)
    assert not clock.fits(21.0, PLAIN, start=True, up=True)
    assert clock.fits(60.0, PLAIN, up=True)
    assert clock.fits(70.0, PLAIN)
    assert not clock.fits(71.0, PLAIN)
