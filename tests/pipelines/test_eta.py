"""Claims about when a pipeline will be done. `until` takes a second for a token."""

import pytest

from app.pipelines import eta
from app.pipelines.eta import StageLoad

INPUT = StageLoad(0, None, None, 100, 0, 0, final=True)


def load(n: int, parent: int, total: int, taken: int, **more: object) -> StageLoad:
    """A stage of the pool `small` whose items all ran, of 10 tokens each."""
    values: dict[str, object] = {"pool": "small", "ran": total, "final": False, "tokens": 10.0}
    return StageLoad(n, parent, total=total, taken=taken, **(values | more))  # type: ignore[arg-type]


def seconds(*stages: StageLoad, busy: tuple[float | None, ...] = ()) -> float | None:
    return eta.seconds([INPUT, *stages], busy, lambda pool, tokens: tokens if pool == "small" else tokens / 10)


def test_what_is_to_come_counts_through_all_stages_at_the_rate_so_far() -> None:
    first, second = load(1, 0, 40, 40), load(2, 1, 10, 20)  # half of the first's items became one of the second's
    assert eta.to_come([INPUT, first, second]) == {0: 0.0, 1: 60.0, 2: 40.0}
    assert seconds(first, second) == (60 + 40) * 10


def test_a_fan_out_multiplies_and_items_that_pass_cost_nothing() -> None:
    fan = load(1, 0, 150, 50, ran=75)  # three a line, half of which were passed on
    assert seconds(fan) == 50 * 3 * 0.5 * 10


def test_the_slowest_model_decides_and_so_does_what_exists_already() -> None:
    stages = load(1, 0, 90, 90), load(2, 1, 0, 0, pool="large", tokens=None)
    assert seconds(*stages) == 100
    assert seconds(*stages, busy=(500.0, 3.0)) == 500


@pytest.mark.parametrize("busy", [(None,), (4.0, None)])
def test_nothing_is_said_while_a_pace_or_a_size_is_not_known(busy: tuple[float | None, ...]) -> None:
    assert seconds(load(1, 0, 100, 100), busy=busy) is None
    assert seconds(load(1, 0, 0, 0, tokens=None)) is None


def test_a_final_stage_needs_nothing() -> None:
    assert seconds(load(1, 0, 70, 100, final=True), load(2, 1, 70, 70, final=True)) == 0
