"""The plan of a run on a GPU: its pieces, what fits into nine minutes, its arrivals, and where a ramp has its knee."""

from statistics import mean, pstdev

import pytest

from tests.needs import module

module("numpy")

from benchmarks.colocation.engine_profiles import DEVICES, GPU, of_device  # noqa: E402
from benchmarks.colocation.gpu_model import SIZES, vocabulary  # noqa: E402
from benchmarks.colocation.gpu_plan import (  # noqa: E402
    INSIDE,
    PLAN,
    RAMP_CALLS,
    RAMP_RANGE,
    Clock,
    capacity,
    knee,
    left,
    parsed,
    poisson,
    probes,
    ramp,
    rate_of_ramp,
)
from benchmarks.colocation.sync_callers import Call  # noqa: E402
from benchmarks.colocation.track_gpu import DRAIN_SECONDS  # noqa: E402

BIG = SIZES["8b"]


def test_the_plan_begins_with_what_the_rest_needs_and_alternates_alone_and_l2():
    names = [piece.name for piece in parsed(PLAN)]
    assert names[:6] == ["steps#1", "ramp#1", "alone@88#1", "l2@88#1", "alone@88#2", "l2@88#2"]
    assert names[6:] == ["priority@88#1", "l2@60#1", "alone@60#1"]


def test_only_arms_without_our_scheduler_need_an_installation_of_their_own():
    assert [p.installation for p in parsed(PLAN)] == [INSIDE] * 6 + ["priority"] + [INSIDE] * 2
    assert parsed("static_20@88")[0].installation == "static_20"


def test_a_resumed_run_does_what_is_left():
    pieces = parsed(PLAN)
    done = {piece.name for piece in pieces[:4]}
    assert left(pieces, done) == pieces[4:]
    assert not left(pieces, {piece.name for piece in pieces})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ("steps,l3@88", "no arm 'l3'"),
        ("static_N@88", "no arm 'static_N'"),
        ("l2", "l2@88 for 88 %"),
        ("l2@much", "l2@88 for 88 %"),
        ("ramp@88", "ramp without @"),
    ],
)
def test_a_wrong_plan_is_refused(plan, message):
    with pytest.raises(ValueError, match=message):
        parsed(plan)


def test_the_plan_fits_into_nine_minutes_with_a_minute_to_spare_for_slow_starts():
    beside = BIG.warm_seconds + BIG.turn_seconds + DRAIN_SECONDS
    lengths = {
        "steps": BIG.steps_seconds,
        "ramp": BIG.ramp_seconds + DRAIN_SECONDS,
        "alone": BIG.turn_seconds + DRAIN_SECONDS,
    }
    pieces = sum(lengths.get(piece.arm, beside) for piece in parsed(PLAN))
    clock = Clock(0.0)
    assert pieces + clock.engine + 3 * clock.installation < 540


def test_what_fits():
    clock = Clock(ends=100.0, engine=40.0, installation=10.0, seconds={"l2": 30.0})
    assert clock.fits(20.0, "l2", engine=True, installation=True)
    assert not clock.fits(21.0, "l2", engine=True, installation=True)
    assert clock.fits(60.0, "l2", installation=True)
    assert clock.fits(70.0, "l2")
    assert not clock.fits(71.0, "l2")


def test_arms_of_one_cycle_have_the_same_arrivals():
    due = poisson(20.0, 30.0, 512, 128, "88 1")
    assert due == poisson(20.0, 30.0, 512, 128, "88 1") != poisson(20.0, 30.0, 512, 128, "88 2")
    assert 500 < len(due) < 700
    assert {(each.prompt, each.output) for each in due} == {(505, 128)}


def test_a_ramp_rises_by_the_same_factor_each_second():
    due = [each.at for each in ramp(10.0, 40.0, 60.0, 512, 128)]
    assert due == sorted(due)
    assert rate_of_ramp(10.0, 40.0, 60.0, 30.0) == pytest.approx(20.0)
    for begin in (0.0, 24.0, 48.0):
        count = sum(begin <= at < begin + 12 for at in due)
        assert count / 12 == pytest.approx(rate_of_ramp(10.0, 40.0, 60.0, begin + 6), rel=0.25)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_probes_fit_into_the_engine_and_leave_time_to_end(size):
    due = probes(size.slots, size.context, size.steps_seconds)
    assert all(each.prompt + 7 + each.output < size.context for each in due)
    assert max(each.at for each in due) <= 0.8 * size.steps_seconds
    assert max(sum(each.at == at for each in due) for at in {each.at for each in due}) <= size.slots


def queue(rates, seconds, capacity_, stay=3.0):
    """Calls of a ramp at one server: each waits for those before it, and stays for a while after its first token."""
    free, calls = 0.0, []
    for each in ramp(*rates, seconds, 512, 128):
        free = max(free, each.at) + 1 / capacity_
        calls.append(Call(each.at, each.at, free + 0.05, free + stay, 2))
    return calls


@pytest.mark.parametrize("serves", [20.0, 35.0, 60.0])
def test_the_knee_of_a_queue_is_where_it_serves_no_more(serves):
    rates = [share * serves for share in RAMP_RANGE]
    found = knee(queue(rates, 45.0, serves), *rates, 45.0)
    assert found is not None
    assert found.reached
    assert 0.8 < found.rate / serves < 1.1


@pytest.mark.parametrize("serves", [0.5, 2.0])
def test_a_slow_engine_has_a_longer_ramp_and_its_knee_too(serves):
    rates = [share * serves for share in RAMP_RANGE]
    seconds = RAMP_CALLS / rates[0]
    found = knee(queue(rates, seconds, serves), *rates, seconds)
    assert found is not None
    assert 0.6 < found.rate / serves <= RAMP_RANGE[1]


def test_a_ramp_that_ends_before_the_knee_says_so():
    found = knee(queue((5.0, 10.0), 45.0, 60.0), 5.0, 10.0, 45.0)
    assert found is not None
    assert not found.reached
    assert found.rate == pytest.approx(10.0)


def test_a_short_disturbance_is_no_knee():
    calls = [Call(0.05 * n, 0.05 * n, 0.05 * n + (1.0 if 200 <= n < 230 else 0.1), 0.05 * n + 2) for n in range(900)]
    found = knee(calls, 10.0, 30.0, 45.0)
    assert found is not None
    assert not found.reached


def test_unanswered_calls_waited_without_end():
    calls = [Call(0.05 * n, 0.05 * n, 0.05 * n + 0.1 if n < 600 else None) for n in range(900)]
    found = knee(calls, 10.0, 30.0, 45.0)
    assert found is not None
    assert found.reached
    assert found.rate == pytest.approx(rate_of_ramp(10.0, 30.0, 45.0, 28.5), rel=0.05)


def test_calls_that_are_not_answered_at_the_beginning_put_the_knee_there():
    found = knee([Call(0.05 * n, 0.05 * n) for n in range(900)], 10.0, 30.0, 45.0)
    assert found is not None
    assert (found.rate, found.reached, found.base_ms) == (10.0, True, None)


def test_too_few_calls_have_no_knee():
    assert knee([Call(float(n), float(n), n + 0.1, n + 1.0) for n in range(9)], 1.0, 2.0, 9.0) is None


def test_an_h200_reads_faster_than_an_h100_and_serves_more():
    assert of_device("NVIDIA H100 80GB HBM3") == GPU
    assert of_device("NVIDIA H200") == DEVICES["H200"]
    assert 25 < capacity(GPU, 512, 128) < capacity(DEVICES["H200"], 512, 128) < 60


def test_batch_lengths_are_lognormal_and_cut():
    lengths = BIG.batch_lengths("88 1")
    assert max(lengths) == 2048
    assert min(lengths) >= 1
    assert 430 < mean(lengths) < 530
    assert 280 < pstdev(lengths) < 420


def test_words_and_digits_are_tokens_and_every_token_has_a_text():
    found = vocabulary(49152)
    assert len(found) == 49152
    assert sorted(found.values()) == list(range(49152))
    assert {"river", "7"} <= set(found)
