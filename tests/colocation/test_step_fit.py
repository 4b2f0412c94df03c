"""Step times fitted to the steps of an engine, and how wrong they are."""

from dataclasses import replace
from random import Random

import pytest

np = pytest.importorskip("numpy")

from benchmarks.colocation.engine_profiles import DEVICES, GPU  # noqa: E402
from benchmarks.colocation.step_fit import Steps, errors, fitted, predicted  # noqa: E402
from workers.engine.step_stats_receiver import StepStats  # noqa: E402

CAPACITY = 400_000
TRUE = replace(GPU, overhead=4e-3, read_weights=5e-3, per_token=25e-6, overlap=0.3, per_context=40e-9)


def seen(profile, count=600, noise=0.05, pauses=0.0, seed=1):
    """Steps of an engine with these times: decodes of all sizes, some with prompts, some followed by a pause."""
    chance, at, listed = Random(seed), 0.0, []
    for _ in range(count):
        made = chance.randint(1, 256)
        prompt = chance.choice([0, 0, 0, 64, 512, 2048])
        context = chance.randint(0, 200_000)
        seconds = profile.seconds(made + prompt, context) * chance.lognormvariate(0, noise)
        at += seconds + (chance.random() < pauses) * 0.2
        listed.append(StepStats(at, 0, 10, 0, (context + made + prompt) / CAPACITY, prompt, made, 0.0))
    return Steps(listed, CAPACITY)


def test_the_times_of_an_engine_are_found_again():
    found = fitted(seen(TRUE), GPU)
    assert found is not None
    fresh = seen(TRUE, seed=2)
    assert errors(found, fresh)["all"]["error_p50_percent"] < 6
    assert abs(errors(found, fresh)["all"]["total_percent"]) < 3
    assert found.per_token == pytest.approx(TRUE.per_token, rel=0.1)
    assert found.per_context == pytest.approx(TRUE.per_context, rel=0.2)
    assert (found.slots, found.kv_blocks) == (GPU.slots, GPU.kv_blocks)


def test_pauses_of_a_busy_server_do_not_move_the_fit():
    found = fitted(seen(TRUE, pauses=0.05), GPU)
    assert found is not None
    assert errors(found, seen(TRUE, seed=2))["decode"]["error_p50_percent"] < 7


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


def test_a_step_that_began_on_an_idle_engine_or_has_no_tokens_is_left_out():
    given = [
        StepStats(1.0, 0, 4, 0, 0.1, 0, 4, 0.0),
        StepStats(1.1, 0, 0, 0, 0.0, 0, 4, 0.0),  # the last of all requests
        StepStats(9.0, 0, 4, 0, 0.1, 64, 4, 0.0),  # began after a silence
        StepStats(9.1, 0, 4, 0, 0.1, 0, 0, 0.0),
        StepStats(9.2, 0, 4, 0, 0.1, 0, 4, 0.0),
    ]
    steps = Steps(given, CAPACITY)
    assert np.allclose(steps.seconds, [0.1, 0.1])
    assert steps.tokens.tolist() == [4, 4]


def test_few_steps_give_no_fit():
    assert fitted(seen(TRUE, count=20), GPU) is None


@pytest.mark.parametrize("profile", DEVICES.values(), ids=DEVICES)
def test_a_profile_predicts_what_the_simulator_uses(profile):
    steps = seen(profile, count=20, noise=0.0)
    assert predicted(profile, steps) == pytest.approx(steps.seconds, rel=0.02)
