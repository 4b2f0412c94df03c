"""What has a span: the rules, by tables."""

import pytest

from app.trace_context import SpanContext
from app.tracing.sampling import (
    CREDIT_AN_ITEM,
    FIRST_CREDIT,
    RESERVED,
    Credit,
    SlowItems,
    Story,
    chosen,
    chosen_trace,
    story,
)
from app.tracing.span import Origin

SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
DECLINED = SAMPLED[:-1] + "0"


@pytest.mark.parametrize(
    ("ok", "attempt", "slow", "sampled", "found"),
    [
        (True, 1, False, False, None),
        (True, 1, False, True, Story.SAMPLED),
        (False, 3, True, True, Story.SAMPLED),
        (False, 1, False, False, Story.FAILED),
        (False, 3, True, False, Story.FAILED),
        (False, 0, False, False, Story.FAILED),  # given up, and never sent
        (True, 2, True, False, Story.RETRIED),
        (True, 1, True, False, Story.SLOW),
    ],
)
def test_an_item_has_a_span_for_the_first_of_its_stories(
    ok: bool, attempt: int, slow: bool, sampled: bool, found: Story | None
) -> None:
    assert story(ok=ok, attempt=attempt, slow=slow, sampled=sampled) == found


@pytest.mark.parametrize("share", [0.0, 0.01, 0.25, 1.0])
def test_about_that_share_of_all_names_is_chosen_and_always_the_same_ones(share: float) -> None:
    names = [f"17/{seq}" for seq in range(20_000)]
    found = [name for name in names if chosen(name, share)]
    assert found == [name for name in names if chosen(name, share)]
    assert abs(len(found) - share * 20_000) <= 0.005 * 20_000


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.1, 300, 500), (1.0, 4000, 4000)])
def test_about_that_share_of_all_traces_is_chosen(share: float, least: int, most: int) -> None:
    found = sum(chosen_trace(SpanContext.new().trace_id, share) for _ in range(4000))
    assert least <= found <= most


@pytest.mark.parametrize(
    ("left", "why", "pays"),
    [
        (0.0, Story.SAMPLED, True),
        (0.9, Story.FAILED, False),
        (1.0, Story.FAILED, True),
        (RESERVED, Story.RETRIED, False),
        (RESERVED, Story.SLOW, False),
        (RESERVED, Story.BARE, False),
        (RESERVED + 1, Story.BARE, True),
    ],
)
def test_the_last_part_of_the_credit_is_for_failures_and_samples_are_free(left: float, why: Story, pays: bool) -> None:
    credit = Credit(left)
    assert credit.pays(why) == pays
    assert credit.left == left - (pays and why is not Story.SAMPLED)


def test_credit_grows_with_the_items() -> None:
    credit = Credit()
    credit.earn(50_000)
    assert credit.left == pytest.approx(FIRST_CREDIT + 50_000 * CREDIT_AN_ITEM)


@pytest.mark.parametrize(
    ("usual_ms", "ms", "slow"),
    [(100, 900, False), (100, 1000, True), (1000, 3999, False), (1000, 4000, True), (1, 999, False)],
)
def test_slow_is_four_times_the_median_and_at_least_a_second(usual_ms: float, ms: float, slow: bool) -> None:
    items = SlowItems()
    for _ in range(300):
        assert not items.add(usual_ms)
    assert items.add(ms) == slow


def test_among_the_first_items_none_is_slow() -> None:
    items = SlowItems()
    assert not any(items.add(ms) for ms in (1, 60_000, 1, 60_000))


@pytest.mark.parametrize(
    ("header", "chosen_by_us", "sampled"),
    [(SAMPLED, False, True), (DECLINED, True, False), (None, True, True), (None, False, False)],
)
def test_the_callers_decision_about_its_trace_wins(header: str | None, chosen_by_us: bool, sampled: bool) -> None:
    origin = Origin.of(header, 1).sampled_if(chosen_by_us)
    assert origin.context.sampled == origin.again().context.sampled == sampled
    assert origin.again().context.span_id != origin.context.span_id


def test_every_process_finds_the_same_name_for_the_end_of_a_run() -> None:
    submit = SpanContext.new()
    assert submit.named("end 1") == submit.named("end 1")
    assert len({submit.span_id, submit.named("end 1").span_id, submit.named("end 2").span_id}) == 3
    assert submit.named("end 1").trace_id == submit.trace_id
