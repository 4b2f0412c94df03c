"""Prices, costs and amounts as integers."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engines import catalogue
from app.metering import money
from app.metering.money import TokenPrice

ROOT = Path(__file__).parents[2]
AMOUNTS = st.integers(-(10**19), 10**19)
PRICES = st.builds(TokenPrice, *[st.integers(0, money.MOST_PRICE * 10**money.PRICE_PLACES)] * 3)


@given(st.integers(0, 10**7), st.integers(0, 10**7), st.integers(0, 10**7), PRICES)
def test_a_cost_is_the_exact_one_rounded_half_up(fresh: int, cached: int, output: int, price: TokenPrice) -> None:
    exact = Fraction(fresh * price.input + cached * price.cached + output * price.output, 1000)
    found = money.cost(fresh + cached, cached, output, price)
    assert Fraction(-1, 2) < found - exact <= Fraction(1, 2)


def test_cached_tokens_have_their_own_price() -> None:
    price = TokenPrice(input=600_000, cached=100_000, output=3_000_000)
    assert money.cost(1000, 400, 50, price) == 600 * 600 + 400 * 100 + 50 * 3000


def test_every_price_of_the_shipped_catalogue_is_exact() -> None:
    models = catalogue.load(ROOT / "app" / "demo_models.toml").models.values()
    priced = [model.price for model in models if model.price]
    assert priced
    for price in priced:
        found = TokenPrice.of(price, "model")
        assert Decimal(found.input).scaleb(-6) == price.input
        assert Decimal(found.cached).scaleb(-6) == price.cached_input
        assert Decimal(found.output).scaleb(-6) == price.output
        assert found.currency == price.currency


@given(st.integers(0, money.MOST_PRICE * 10**money.PRICE_PLACES))
def test_a_price_of_a_million_tokens_with_six_decimal_places_is_exact(units: int) -> None:
    assert money.per_token(Decimal(units).scaleb(-6), "price") == units


@pytest.mark.parametrize(
    ("price", "message"),
    [
        ("0.0000001", "finer than 0.000001; round it to 6 decimal places"),
        ("-1", "not between 0 and 1,000,000"),
        ("1000000.1", "not between"),
        ("1E+999999", "not between"),
        ("1E-999999", "finer"),
        ("NaN", "not between"),
        ("Infinity", "not between"),
    ],
)
def test_a_price_that_is_wrong_is_refused_with_its_place(price: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        TokenPrice.of(catalogue.Price(Decimal(0), Decimal(0), Decimal(price)), 'models.toml: [models."m"] price')
    assert str(caught.value).startswith('models.toml: [models."m"] price output: the price ')
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("written", "units"),
    [
        ("12.50", 12_500_000_000),
        (" 100 USD ", 100_000_000_000),
        ("USD 100", 100_000_000_000),
        ("0.5usd", 500_000_000),
        ("0.000000001", 1),
        ("0.10000000000", 100_000_000),
        (0, 0),
        (25, 25_000_000_000),
        (0.1, 100_000_000),
        (Decimal("12.5"), 12_500_000_000),
        ("9000000000", money.MOST_AMOUNT * money.UNITS),
    ],
)
def test_an_amount_is_read_exactly(written: str | float | Decimal, units: int) -> None:
    assert money.parse_amount(written, "max") == units


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "not an amount"),
        ("12,50", "with a point for decimals"),
        ("1,000.00", "no thousands separators"),
        ("-5", "signs"),
        ("$5", "signs"),
        ("1e3", "not an amount"),
        ("NaN", "not an amount"),
        ("5.", "not an amount"),
        (".5", "not an amount"),
        ("٥", "not an amount"),
        ("USD 5 USD", "not an amount"),
        (True, "not an amount"),
        ("9" * 10_000, "not an amount"),
        ("5 EUR", "is in EUR, but amounts here are in USD; write it in USD"),
        ("0.0000000001", "finer than 0.000000001; round it to 9 decimal places"),
        ("9000000000.01", "more than 9,000,000,000 USD"),
    ],
)
def test_an_amount_that_is_wrong_is_refused_with_its_place_and_mend(written: str | int, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        money.parse_amount(written, "budget 'may' max")
    assert str(caught.value).startswith("budget 'may' max: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 250


def test_the_expected_currency_may_be_named() -> None:
    assert money.parse_amount("5 EUR", "max", "EUR") == money.parse_amount("5", "max", "EUR") == 5 * money.UNITS


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (0, "$0.00"),
        (12_500_000_000, "$12.50"),
        (1_234_567_890_000_000, "$1,234,567.89"),
        (4_230_000, "$0.0042"),
        (1, "$0.000000001"),
        (-1, "-$0.000000001"),
        (12, "$0.000000012"),
        (996_000_000, "$1.00"),
        (12_345_000_000, "$12.35"),
        (-300_000_000, "-$0.30"),
    ],
)
def test_an_amount_is_shown_in_cents_and_finer_where_it_is_small(units: int, text: str) -> None:
    assert money.shown(units) == text


def test_other_currencies_are_shown_by_symbol_or_code() -> None:
    assert [money.shown(3 * money.UNITS, currency) for currency in ("EUR", "GBP", "CHF")] == [
        "€3.00",
        "£3.00",
        "3.00 CHF",
    ]
    assert [money.change(units * 10**8) for units in (121, 0, -3)] == ["+$12.10", "$0.00", "-$0.30"]


@given(AMOUNTS)
def test_only_zero_is_shown_as_zero_and_what_is_shown_is_within_five_per_cent(units: int) -> None:
    number = money.shown(units, "CHF").removesuffix(" CHF").replace(",", "")
    shown = Fraction(number) * money.UNITS
    assert (shown == 0) == (units == 0)
    assert abs(shown - units) <= abs(units) / 20
    assert shown * units >= 0


@given(st.integers(0, money.MOST_AMOUNT * money.UNITS))
def test_an_amount_shown_with_every_place_is_read_back_as_it_was(units: int) -> None:
    assert money.parse_amount(money.shown(units, "CHF", places=9).replace(",", ""), "max", "CHF") == units


@given(AMOUNTS)
def test_micro_units_are_rounded_but_never_to_zero(units: int) -> None:
    micros = money.micros(units)
    assert abs(micros * 1000 - units) <= (500 if abs(units) >= 500 else 999)
    assert (micros > 0, micros < 0) == (units > 0, units < 0)
    assert money.micros(-units) == -micros
