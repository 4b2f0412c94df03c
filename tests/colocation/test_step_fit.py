"""Step times fitted to the steps of an engine, and how wrong they are."""

from dataclasses import replace
from random import Random

import pytest

from tests.needs import module

np = module("numpy")

from benchmarks.colocation.engine_profiles import DEVICES, GPU  # noqa: E402
from benchmarks.colocation.step_fit import Steps, errors, fitted, predicted  # noqa: E402
from workers.engine.step_stats_receiver import StepStats  # noqa: E402

CAPACITY = 400_000
TRUE = replace(GPU, overhead=4e-3, read_weights=5e-3, per_token=25e-6, overlap=0.3, per_context=40e-9)


def seen(profile, count=1500, noise=0.05, pauses=0.0, late=0.0, seed=1):
    """Steps of an engine with these times: decodes of all sizes for a while, some with prompts, some followed by a pause.

    `late`: mean seconds by which the server sees a step late.
    """
    chance, at, told, listed = Random(seed), 0.0, 0.0, []
    for number in range(count):
        if number % 10 == 0:
            running, context, prompts = chance.randint(1, 256), chance.randint(0, 200_000), chance.random() < 0.5
        prompt = chance.choice([0, 0, 64, 512, 2048]) if prompts else 0
        seconds = profile.seconds(running + prompt, context) * chance.lognormvariate(0, noise)
        at += seconds + (chance.random() < pauses) * 0.2
        told = max(told, at + (chance.expovariate(1 / late) if late else 0.0))
        listed.append(StepStats(told, 0, 10, 0, (context + running + prompt) / CAPACITY, prompt, running, 0.0))
    return Steps([(listed, CAPACITY)])


def test_the_times_of_an_engine_are_found_again():
    found = fitted(seen(TRUE), GPU)
    assert found is not None
    fresh = seen(TRUE, seed=2)
    assert errors(found, fresh)["all"]["error_p50_percent"] < 6
    assert abs(errors(found, fresh)["all"]["total_percent"]) < 3
    assert found.per_token == pytest.approx(TRUE.per_token, rel=0.1)
    assert found.per_context == pytest.approx(TRUE.per_context, rel=0.2)
    assert (found.slots, found.kv_blocks) == (GPU.slots, GPU.kv_blocks)


@pytest.mark.parametrize("disturbed", [{"pauses": 0.02}, {"late": 0.02}, {"late": 0.05}])
def test_a_busy_server_that_pauses_or_sees_steps_late_does_not_move_the_fit(disturbed):
    found = fitted(seen(TRUE, **disturbed), GPU)
    assert found is not None
    assert errors(found, seen(TRUE, seed=2))["all"]["error_p50_percent"] < 12


def test_assumed_times_that_are_wrong_are_shown_to_be_wrong():
    slower = replace(TRUE, overhead=12e-3)
    rows = errors(TRUE, seen(slower))
    assert rows["decode"]["total_percent"] < -25
    assert rows["all"]["steps"] == rows["decode"]["steps"] + rows["with_prompts"]["steps"]


def test_no_time_is_negative():
    flat = replace(GPU, overhead=10e-3, read_weights=0.0, per_token=0.0, per_context=0.0)
    found = fitted(seen(flat, noise=0.2), GPU)
    assert found is not None
    assert min(found.overhead, found.read_weights, found.per_token, found.per_context) >= 0


def steps(*times, idle_after=()):
    return [StepStats(at, 0, 0 if at in idle_after else 4, 0, 0.1, 0, 4, 0.0) for at in times]


def test_a_stretch_does_not_reach_over_a_silence():
    times = [0.1 * n for n in range(9)] + [9.0 + 0.1 * n for n in range(11)]
    found = Steps([(steps(*times, idle_after=(times[8],)), CAPACITY)])
    assert found.seconds == pytest.approx([0.8, 0.8])
    assert found.begins.tolist() == [0, 8]
    assert len(found.tokens) == 16
    assert Steps([(steps(*times[:8]), CAPACITY)]).seconds.tolist() == []


def test_steps_of_two_pieces_are_not_joined():
    piece = steps(*[0.1 * n for n in range(9)])
    assert Steps([(piece, CAPACITY), (piece, CAPACITY)]).seconds == pytest.approx([0.8, 0.8])


def test_few_steps_give_no_fit():
    assert fitted(seen(TRUE, count=20), GPU) is None


@pytest.mark.parametrize("profile", DEVICES.values(), ids=DEVICES)
def test_a_profile_predicts_what_the_simulator_uses(profile):
    found = seen(profile, count=200, noise=0.0)
    assert predicted(profile, found) == pytest.approx(found.seconds, rel=0.02)
