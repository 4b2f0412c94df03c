"""Prices, costs and amounts of money as integers. Pure.

    price    10^-12 of the currency for one token: the price of a million tokens in 10^-6 of the currency
    amount   10^-9 of the currency, since many a token costs less than 10^-6; a cost is an amount

Every amount fits the database's bigint. So does the cost of 9 million tokens at the highest price, before its last division.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from app.engines.catalogue import Price

UNITS = 10**9  # of an amount in one unit of the currency
MICROS = 10**6
PRICE_PLACES = 6  # decimal places of the price of a million tokens
AMOUNT_PLACES = 9
MOST_PRICE = 10**6  # of a million tokens, in units of the currency
MOST_AMOUNT = 9 * 10**9  # in units of the currency

_WRITTEN = re.compile(r"([A-Za-z]{3} ?)?([0-9]{1,40}(?:\.[0-9]{1,40})?)( ?[A-Za-z]{3})?")
_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£"}


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What one token costs, in 10^-12 of `currency`: of the prompt, of the prompt's cached part, of the answer."""

    input: int
    cached: int
    output: int
    currency: str = "USD"

    @classmethod
    def of(cls, price: Price, where: str) -> "TokenPrice":
        """The price of a model in the catalogue, exactly. Raises ValueError as `per_token` does; `where` names the model."""
        return cls(
            per_token(price.input, f"{where} input"),
            per_token(price.cached_input, f"{where} cached_input"),
            per_token(price.output, f"{where} output"),
            price.currency,
        )


def cost(prompt: int, cached: int, output: int, price: TokenPrice) -> int:
    """The cost of these tokens, rounded half up. `cached` is a part of `prompt`. The database computes the same."""
    return ((prompt - cached) * price.input + cached * price.cached + output * price.output + 500) // 1000


def costs(prompts: Sequence[int], outputs: Sequence[int], price: TokenPrice) -> list[int]:
    """The `cost` of many requests without cached tokens."""
    of_prompt, of_output = price.input, price.output
    return [
        (prompt * of_prompt + output * of_output + 500) // 1000 for prompt, output in zip(prompts, outputs, strict=True)
    ]


def per_token(million: Decimal, where: str) -> int:
    """The price of one token, exactly, from that of a million tokens. Raises ValueError: negative, too fine, too high."""
    if not million.is_finite() or not 0 <= million <= MOST_PRICE:
        raise ValueError(
            f"{where}: the price {_short(million)} of a million tokens is not between 0 and {MOST_PRICE:,}; correct it"
        )
    return _scaled(million, PRICE_PLACES, f"{where}: the price {_short(million)} of a million tokens")


def parse_amount(written: str | int | float | Decimal, where: str, currency: str = "USD") -> int:
    """An amount as a person writes it: 12.50, "12.50", "100 USD". `currency`: the one that is expected here.

    Raises ValueError, which begins with `where`: not a number, too fine, too large, of another currency.
    """
    text = str(written).strip()
    found = _WRITTEN.fullmatch(text)
    if found is None or (found[1] and found[3]):
        raise ValueError(
            f"{where}: {_short(text)!r} is not an amount of money; write digits with a point for decimals, "
            f"and no thousands separators or signs: 12.50 or '12.50 {currency}'"
        )
    named = (found[1] or found[3] or currency).strip().upper()
    if named != currency:
        raise ValueError(
            f"{where}: {_short(text)!r} is in {named}, but amounts here are in {currency}; write it in {currency}"
        )
    value = Decimal(found[2])
    if value > MOST_AMOUNT:
        raise ValueError(f"{where}: {_short(text)!r} is more than {MOST_AMOUNT:,} {currency}; write a smaller amount")
    return _scaled(value, AMOUNT_PLACES, f"{where}: {_short(text)!r}")


def micros(amount: int) -> int:
    """The amount in micro-units, as on the wire: rounded half away from 0. What is not 0 does not become 0."""
    rounded = (2 * abs(amount) * MICROS + UNITS) // (2 * UNITS)
    return _signed(max(rounded, 1) if amount else 0, amount)


def shown(amount: int, currency: str = "USD", places: int = 2) -> str:
    """The amount for a person: $12.50, $0.0042, 3.00 CHF. Only 0 is shown as 0.

    It has this many decimal places, and more where it needs them for two significant digits.
    """
    value = abs(Decimal(amount).scaleb(-AMOUNT_PLACES))
    places = max(places, 1 - value.adjusted()) if value else places
    number = f"{value.quantize(Decimal(1).scaleb(-min(places, AMOUNT_PLACES)), ROUND_HALF_UP):,f}"
    symbol = _SYMBOLS.get(currency)
    return ("-" if amount < 0 else "") + (f"{symbol}{number}" if symbol else f"{number} {currency}")


def change(amount: int, currency: str = "USD") -> str:
    """A difference for a person, with its sign: +$12.10, -$0.30."""
    return ("+" if amount > 0 else "") + shown(amount, currency)


def _scaled(value: Decimal, places: int, what: str) -> int:
    """The value times 10^places. Raises ValueError if it has more decimal places."""
    step = Decimal(1).scaleb(-places)
    whole = value.quantize(step)
    if whole != value:
        raise ValueError(f"{what} is finer than {step:f}; round it to {places} decimal places")
    return int(whole.scaleb(places))


def _signed(size: int, like: int) -> int:
    return -size if like < 0 else size


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
