"""The step model learns a GPU's and a CPU's steps from scratch and survives hiccups and monotony."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.step_model import WARM, StepModel

Law = Callable[[int, int], float]


def gpu(tokens: int, context: int) -> float:
    return 3e-3 + max(6.4e-3, 32e-6 * tokens) + 52e-9 * context


def cpu(tokens: int, context: int) -> float:
    return 15e-3 + 1e-3 * tokens + 2e-7 * context


def taught(law: Law, steps: int = 1500, noise: float = 0.05, hiccups: int = 0) -> StepModel:
    rng, model = random.Random(3), StepModel()
    for k in range(steps):
        tokens = rng.randint(1, 256) if k % 5 else rng.randint(1, 2048)
        context = min(tokens, 256) * rng.randint(100, 1000)
        slow = 6 if hiccups and k % hiccups == 0 else 1
        model.learn(tokens, context, law(tokens, context) * max(0.1, rng.gauss(1, noise)) * slow)
    return model


@pytest.mark.parametrize("law", [gpu, cpu])
@pytest.mark.parametrize("hiccups", [0, 50])
def test_predictions_come_within_a_tenth_and_hiccups_move_them_little(law: Law, hiccups: int) -> None:
    model = taught(law, hiccups=hiccups)
    for tokens, context in ((1, 200), (64, 30_000), (200, 80_000), (1000, 50_000), (2048, 100_000)):
        assert model.predict(tokens, context) == pytest.approx(law(tokens, context), rel=0.17 if hiccups else 0.1)


def test_hours_of_one_kind_of_step_do_not_spoil_the_others() -> None:
    model, rng = taught(gpu), random.Random(5)
    for _ in range(5000):
        model.learn(100, 30_000, gpu(100, 30_000) * rng.gauss(1, 0.05))
    assert model.predict(2048, 100_000) == pytest.approx(gpu(2048, 100_000), rel=0.15)


def test_a_lasting_change_is_followed() -> None:
    model, rng = taught(gpu), random.Random(7)
    for _ in range(1500):
        tokens, context = rng.randint(1, 1000), rng.randint(0, 100_000)
        model.learn(tokens, context, 2 * gpu(tokens, context))
    assert model.predict(300, 50_000) == pytest.approx(2 * gpu(300, 50_000), rel=0.1)


def test_it_begins_again_from_its_weights() -> None:
    model = taught(gpu)
    again = StepModel.of(model.weights)
    assert again.weights == pytest.approx(model.weights)
    assert again.samples == 0
    with pytest.raises(ValueError):
        StepModel.of((float("nan"), 0, 0, 0, 0))


def test_a_model_that_predicts_no_time_at_all_learns_again() -> None:
    model = StepModel.of((0, 0, 0, 0, 512))
    model._best.samples = 10 * WARM
    for _ in range(200):
        model.learn(10, 100, 0.01)
    assert model.predict(10, 100) == pytest.approx(0.01, rel=0.2)


@given(st.lists(st.tuples(st.integers(1, 4096), st.integers(0, 1 << 20), st.floats(1e-5, 10)), max_size=150))
def test_whatever_it_sees_the_slopes_are_non_negative_and_convex(steps: list[tuple[int, int, float]]) -> None:
    model = StepModel()
    for step in steps:
        model.learn(*step)
    assert min(model.base, model.slope_below, model.per_context) >= 0
    assert model.slope_above >= model.slope_below
    assert 0 <= model.error <= 1
