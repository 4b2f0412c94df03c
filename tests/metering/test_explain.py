"""Why the spend changed, and the sentences that describe it."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from math import factorial, lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.metering import money, shapley
from app.metering.explain import FACTORS, Factor, Group, Term, Usage, explain
from app.metering.explain_text import sentence
from app.metering.money import TokenPrice
from tests.sets import drawn

PRICE = TokenPrice(input=600_000, cached=100_000, output=3_000_000)
CHAT = Group("chat", "large", "sync")


def usage(group: Group, price: TokenPrice, requests: int, repeats: int, prompt: int, cached: int, output: int) -> Usage:
    cost = money.cost(prompt, cached, output, price)
    return Usage(group, price, requests, repeats, prompt, cached, output, cost)


BEFORE = usage(CHAT, PRICE, 1200, 200, 600_000, 150_000, 120_000)


def priced(before: Usage, **changes: int | Group | TokenPrice) -> Usage:
    changed = replace(before, **changes)  # type: ignore[arg-type]
    return replace(changed, cost=money.cost(changed.prompt, changed.cached, changed.output, changed.price))


@st.composite
def usages(
    draw: st.DrawFn, groups: Sequence[Group] = tuple(Group(w, m, k) for w in "xy" for m in "ab" for k in "pq")
) -> Usage:
    requests = draw(st.integers(0, 50))
    prompt = draw(st.integers(0, 3000)) if requests else 0
    price = TokenPrice(*(draw(st.integers(0, 5_000_000)) for _ in range(3)))
    repeats, cached, output = draw(st.integers(0, requests)), draw(st.integers(0, prompt)), draw(st.integers(0, 3000))
    return usage(draw(st.sampled_from(groups)), price, requests, repeats, prompt, cached, output if requests else 0)


PERIODS = st.lists(usages(), max_size=12)


@given(PERIODS, PERIODS)
def test_the_terms_add_up_to_the_change_of_the_booked_cost_to_the_unit(before: list[Usage], after: list[Usage]) -> None:
    found = explain(before, after)
    assert sum(term.amount for term in found) == sum(one.cost for one in after) - sum(one.cost for one in before)
    assert [abs(term.amount) for term in found] == sorted((abs(term.amount) for term in found), reverse=True)
    assert all(term.amount for term in found)
    assert len({(term.factor, term.group) for term in found}) == len(found)


@given(PERIODS, PERIODS)
def test_the_rest_is_at_most_the_rounding_of_the_bookings(before: list[Usage], after: list[Usage]) -> None:
    for term in explain(before, after):
        if term.factor is Factor.REST:
            booked = sum(one.group == term.group for one in (*before, *after))
            assert abs(term.amount) <= (booked + 1) // 2


@given(PERIODS, PERIODS)
def test_every_term_has_a_sentence_that_ends_with_its_amount(before: list[Usage], after: list[Usage]) -> None:
    for term in explain(before, after):
        text = sentence(term, "EUR")
        assert text.endswith(f": {money.change(term.amount, 'EUR')}")
        assert f"workflow {term.group.workflow!r}" in text


@given(PERIODS)
def test_an_unchanged_period_has_no_terms(period: list[Usage]) -> None:
    assert explain(period, period) == []


def naive(before: Usage, after: Usage) -> dict[Factor, Fraction]:
    """The mean over all orders in which the factors could change. Both periods have every factor, of one group."""
    sides = [factors(before), factors(after)]
    costs = [product(*(sides[subset >> i & 1][i] for i in range(7))) for subset in range(128)]
    scale = lcm(*(cost.denominator for cost in costs))
    whole = [int(cost * scale) for cost in costs]
    terms = [0] * 7
    for order in permutations(range(7)):
        subset = 0
        for i in order:
            terms[i] += whole[subset | 1 << i] - whole[subset]
            subset |= 1 << i
    return {factor: Fraction(term, scale * factorial(7)) for factor, term in zip(FACTORS, terms, strict=True)}


def product(v: int, m: int, r: Fraction, p: Fraction, h: Fraction, o: Fraction, q: tuple[int, int, int]) -> Fraction:
    fresh, cached, output = q
    return v * m * (1 + r) * (p * ((1 - h) * fresh + h * cached) + o * output) / 1000


def factors(one: Usage) -> list:  # type: ignore[type-arg]
    asks = one.requests - one.repeats
    of = [Fraction(one.repeats, asks), Fraction(one.prompt, one.requests), Fraction(one.cached, one.prompt)]
    return [asks, 1, *of, Fraction(one.output, one.requests), (one.price.input, one.price.cached, one.price.output)]


def full(numbers: st.DataObject) -> Usage:
    """A usage in which every factor is defined."""
    asks, repeats = numbers.draw(st.integers(1, 90)), numbers.draw(st.integers(0, 90))
    cached, fresh = numbers.draw(st.integers(1, 9000)), numbers.draw(st.integers(1, 9000))
    price = TokenPrice(*(numbers.draw(st.integers(0, 5_000_000)) for _ in range(3)))
    return usage(CHAT, price, asks + repeats, repeats, cached + fresh, cached, numbers.draw(st.integers(1, 9000)))


@drawn(10, 50)
@given(st.data())
def test_a_term_is_the_mean_over_all_orders_in_which_the_factors_could_have_changed(numbers: st.DataObject) -> None:
    before, after = full(numbers), full(numbers)
    found = {term.factor: term.amount for term in explain([before], [after])}
    for factor, exact in naive(before, after).items():
        assert abs(found.get(factor, 0) - exact) < 1


@pytest.mark.parametrize(
    ("factor", "after"),
    [
        (Factor.VOLUME, usage(CHAT, PRICE, 2400, 400, 1_200_000, 300_000, 240_000)),
        (Factor.REPEATS, usage(CHAT, PRICE, 2000, 1000, 1_000_000, 250_000, 200_000)),
        (Factor.PROMPT, priced(BEFORE, prompt=1_200_000, cached=300_000)),
        (Factor.CACHED, priced(BEFORE, cached=500_000)),
        (Factor.OUTPUT, priced(BEFORE, output=1)),
        (Factor.PRICE, priced(BEFORE, price=replace(PRICE, output=1))),
    ],
)
def test_a_change_of_one_factor_is_one_term(factor: Factor, after: Usage) -> None:
    found = explain([BEFORE], [after])
    assert [(term.factor, term.amount) for term in found] == [(factor, after.cost - BEFORE.cost)]


def test_requests_that_move_to_another_model_are_a_change_of_both_shares() -> None:
    small = priced(BEFORE, group=Group("chat", "small", "sync"), price=TokenPrice(60_000, 10_000, 300_000))
    found = explain([BEFORE], [small])
    assert {(term.factor, term.group.model): term.amount for term in found} == {
        (Factor.SHARE, "large"): -BEFORE.cost,
        (Factor.SHARE, "small"): small.cost,
    }


def test_a_new_workflow_is_one_change_of_its_volume_over_all_its_models() -> None:
    others = [priced(BEFORE, group=Group("new", model, "batch")) for model in ("large", "small")]
    found = explain([BEFORE], [BEFORE, *others])
    assert [(term.factor, term.group, term.amount) for term in found] == [
        (Factor.VOLUME, Group("new"), 2 * BEFORE.cost),
    ]
    assert [(term.factor, term.amount) for term in explain([BEFORE], [])] == [(Factor.VOLUME, -BEFORE.cost)]


def test_a_period_in_which_all_requests_repeat_earlier_ones_is_explained_as_well() -> None:
    after = priced(BEFORE, repeats=BEFORE.requests)
    found = explain([BEFORE], [after])
    assert sum(term.amount for term in found) == 0
    assert {term.factor for term in found} == {Factor.VOLUME, Factor.REPEATS}


def test_a_cost_without_tokens_is_the_rest() -> None:
    found = explain([BEFORE], [replace(BEFORE, cost=BEFORE.cost + 7)])
    assert [(term.factor, term.amount) for term in found] == [(Factor.REST, 7)]


def test_usage_at_several_prices_has_their_mean() -> None:
    dear = priced(BEFORE, price=TokenPrice(1_200_000, 200_000, 6_000_000))
    found = explain([BEFORE, dear], [BEFORE, BEFORE])
    assert [(term.factor, term.amount) for term in found] == [(Factor.PRICE, BEFORE.cost - dear.cost)]
    assert found[0].before == (900_000, 150_000, 4_500_000)


def test_usage_in_two_currencies_is_refused() -> None:
    euro = replace(BEFORE, price=replace(PRICE, currency="EUR"))
    with pytest.raises(ValueError, match="usage in EUR, USD: explain one currency at a time"):
        explain([BEFORE], [euro])
    assert explain([BEFORE], [BEFORE, replace(euro, cost=0, prompt=0, cached=0, output=0, requests=0, repeats=0)]) == []


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=8), st.integers(1, 50))
def test_rounded_fractions_add_up_and_each_is_less_than_one_from_the_exact_one(
    numerators: list[int], scale: int
) -> None:
    found = shapley.rounded(numerators, scale)
    assert abs(sum(found) - Fraction(sum(numerators), scale)) <= Fraction(1, 2)
    assert all(abs(one - Fraction(exact, scale)) < 1 for one, exact in zip(found, numerators, strict=True))


def term(factor: Factor, old: Sequence[Fraction | int], new: Sequence[Fraction | int]) -> Term:
    group = Group("x") if factor is Factor.VOLUME else Group("x", "m", "batch")
    return Term(factor, group, 12_100_000_000, tuple(map(Fraction, old)), tuple(map(Fraction, new)))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (term(Factor.VOLUME, [1200], [3400]), "requests of workflow 'x' grew from 1,200 to 3,400"),
        (
            term(Factor.SHARE, [Fraction(1, 3)], [Fraction(2, 3)]),
            "share of model 'm' (batch) in the requests of workflow 'x' grew from 33 % to 67 %",
        ),
        (
            term(Factor.REPEATS, [Fraction(1, 100)], [Fraction(1, 3)]),
            "repeats per request of model 'm' (batch) in workflow 'x' grew from 0.01 to 0.33",
        ),
        (
            term(Factor.PROMPT, [Fraction(9001, 4)], [400]),
            "prompt tokens per request of model 'm' (batch) in workflow 'x' fell from 2,250 to 400",
        ),
        (
            term(Factor.CACHED, [Fraction(1, 1000)], [Fraction(2, 1000)]),
            "cached share of the prompts of model 'm' (batch) in workflow 'x' grew from 0.1 % to 0.2 %",
        ),
        (
            term(Factor.OUTPUT, [Fraction(100_001, 1000)], [100]),
            "output tokens per request of model 'm' (batch) in workflow 'x' fell from 100.001 to 100",
        ),
        (
            term(Factor.PRICE, [600_000, 5000, 3_000_000], [600_100, 5000, 2_500_000]),
            "input price grew from $0.6000 to $0.6001, output price fell from $3.00 to $2.50 per million tokens "
            "of model 'm' (batch) in workflow 'x'",
        ),
        (term(Factor.REST, [], []), "rounding, and usage without a request, of model 'm' (batch) in workflow 'x'"),
    ],
)
def test_a_sentence_names_the_factor_the_group_and_both_values(found: Term, text: str) -> None:
    assert sentence(found) == f"{text}: +$12.10"
