"""Why the spend changed between two periods. Pure.

The cost of a group, the usage of one (workflow, model, kind), is a product of seven factors:

    C = V · m · (1 + r) · (p · ((1 - h) · q_in + h · q_cached) + o · q_out)

    V  requests of the workflow, without repeats        h  cached share of the prompt tokens
    m  the group's share of V                           o  output tokens of a request
    r  repeats per request                              q  mean prices
    p  prompt tokens of a request

The term of a factor is its Shapley value: the mean, over all orders in which the factors could have changed one after another, of
the change of C when this one does. So the terms add up to the change of C, and no order is preferred. A factor that is undefined
in one period has the other's value: a group that is new in a workflow is a change of m, a new workflow is one of V.

All numbers are integers and fractions. The amounts, in 10^-9 of the currency, are rounded by the largest remainder, so they add
up to the change of the booked cost to the unit. What the formula does not explain is a term of its own, `rest`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from app.metering import shapley
from app.metering.money import TokenPrice


class Factor(StrEnum):
    """The reasons for a change, in the order of the formula."""

    VOLUME = "volume"
    SHARE = "share"
    REPEATS = "repeats"
    PROMPT = "prompt"
    CACHED = "cached"
    OUTPUT = "output"
    PRICE = "price"
    REST = "rest"


FACTORS = tuple(Factor)[:-1]
_PICO = 1000  # 10^-12 of the currency, in which prices are, in one unit of an amount

Values = tuple[Fraction, ...]  # of V, m, r, p, h, o, and of q: q_in, q_cached, q_out


class Group(NamedTuple):
    """What a term is about. A term of V is about a whole workflow: its `model` and `kind` are empty."""

    workflow: str
    model: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a group in one period at one price. `requests` includes `repeats`; `cost` is what was booked."""

    group: Group
    price: TokenPrice
    requests: int
    repeats: int
    prompt: int
    cached: int
    output: int
    cost: int


@dataclass(frozen=True, slots=True)
class Term:
    """One reason for the change: `amount` in 10^-9 of the currency. `before`, `after`: the factor's values; prices are three."""

    factor: Factor
    group: Group
    amount: int
    before: Values = ()
    after: Values = ()


@dataclass(slots=True)
class _Sums:
    """A group's usage in one period. `priced_*`: tokens times their price, in 10^-12 of the currency."""

    requests: int = 0
    repeats: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0
    priced_fresh: int = 0
    priced_cached: int = 0
    priced_output: int = 0

    @property
    def asks(self) -> int:
        """The requests without repeats. Where all repeat those of an earlier period, they count as requests."""
        return self.requests - self.repeats if self.requests > self.repeats else self.requests

    def add(self, usage: Usage) -> None:
        self.requests += usage.requests
        self.repeats += usage.repeats
        self.prompt += usage.prompt
        self.cached += usage.cached
        self.output += usage.output
        self.cost += usage.cost
        self.priced_fresh += (usage.prompt - usage.cached) * usage.price.input
        self.priced_cached += usage.cached * usage.price.cached
        self.priced_output += usage.output * usage.price.output

    def values(self, volume: int) -> tuple[Fraction | None, ...]:
        """The factors' values. None: undefined."""
        asks, requests = self.asks, self.requests
        return (
            Fraction(volume),
            _ratio(asks, volume),
            _ratio(requests - asks, asks),
            _ratio(self.prompt, requests),
            _ratio(self.cached, self.prompt),
            _ratio(self.output, requests),
            _ratio(self.priced_fresh, self.prompt - self.cached),
            _ratio(self.priced_cached, self.cached),
            _ratio(self.priced_output, self.output),
        )


def explain(before: Iterable[Usage], after: Iterable[Usage]) -> list[Term]:
    """The terms of the change from one period to the next, the largest first. Those of 0 are left out.

    The amounts add up to the booked cost after, less the booked cost before. Raises ValueError for more than one currency.
    """
    before, after = list(before), list(after)
    currencies = {usage.price.currency for usage in (*before, *after) if usage.cost}
    if len(currencies) > 1:
        raise ValueError(f"usage in {', '.join(sorted(currencies))}: explain one currency at a time")
    sums = _sums(before), _sums(after)
    volumes = _volumes(sums[0]), _volumes(sums[1])
    terms: dict[tuple[Factor, Group], Term] = {}
    for group in sorted({*sums[0], *sums[1]}):
        pair = sums[0].get(group, _Sums()), sums[1].get(group, _Sums())
        workflow = Group(group.workflow)
        old, new = _defined(*(pair[i].values(volumes[i].get(group.workflow, 0)) for i in (0, 1)))
        for factor, amount in _amounts(old, new, pair[1].cost - pair[0].cost).items():
            whose = workflow if factor is Factor.VOLUME else group
            known = terms.get((factor, whose))
            values = _of(factor, old), _of(factor, new)
            terms[factor, whose] = Term(factor, whose, amount + (known.amount if known else 0), *values)
    order = list(Factor)
    found = [term for term in terms.values() if term.amount]
    return sorted(found, key=lambda term: (-abs(term.amount), order.index(term.factor), term.group))


def _sums(usages: Iterable[Usage]) -> dict[Group, _Sums]:
    sums: dict[Group, _Sums] = {}
    for usage in usages:
        sums.setdefault(usage.group, _Sums()).add(usage)
    return sums


def _volumes(sums: Mapping[Group, _Sums]) -> dict[str, int]:
    volumes: dict[str, int] = {}
    for group, its in sums.items():
        volumes[group.workflow] = volumes.get(group.workflow, 0) + its.asks
    return volumes


def _ratio(part: int, whole: int) -> Fraction | None:
    return Fraction(part, whole) if whole else None


def _defined(old: tuple[Fraction | None, ...], new: tuple[Fraction | None, ...]) -> tuple[Values, Values]:
    """Both periods' values. One that is undefined becomes the other's; where both are, it does not matter."""
    zero = Fraction()
    pairs = [(a, b) for a, b in zip(old, new, strict=True)]
    return (
        tuple(a if a is not None else b if b is not None else zero for a, b in pairs),
        tuple(b if b is not None else a if a is not None else zero for a, b in pairs),
    )


def _of(factor: Factor, values: Values) -> Values:
    if factor is Factor.REST:
        return ()
    index = FACTORS.index(factor)
    return values[index:] if factor is Factor.PRICE else (values[index],)


def _amounts(old: Values, new: Values, booked: int) -> dict[Factor, int]:
    """The amount of each factor and of the rest, which add up to the booked change."""
    costs, denominator = _costs(old, new)
    amounts = shapley.rounded(shapley.values(costs), denominator * shapley.ORDERS)
    return {**dict(zip(FACTORS, amounts, strict=True)), Factor.REST: booked - sum(amounts)}


def _costs(old: Values, new: Values) -> tuple[list[int], int]:
    """C for each subset of the factors, and the denominator of all: bit i of a subset takes factor i from the second period."""
    (volume, _), (share, of_share) = _whole(old[0], new[0]), _whole(old[1], new[1])
    times, of_times = _whole(1 + old[2], 1 + new[2])
    (*prompt, output, later_output), of_tokens = _whole(old[3], new[3], old[5], new[5])
    cached, of_cached = _whole(old[4], new[4])
    prices, of_prices = _whole(*old[6:], *new[6:])
    requests = [volume[n & 1] * share[n >> 1 & 1] * times[n >> 2] for n in range(8)]
    each = []
    for n in range(16):
        fresh_price, cached_price, output_price = prices[3:] if n >> 3 else prices[:3]
        hits = cached[n >> 1 & 1]
        prompt_cost = prompt[n & 1] * ((of_cached - hits) * fresh_price + hits * cached_price)
        each.append(prompt_cost + (later_output if n >> 2 & 1 else output) * output_price * of_cached)
    return (
        [requests[n & 7] * each[n >> 3] for n in range(2 ** len(FACTORS))],
        of_share * of_times * of_tokens * of_cached * of_prices * _PICO,
    )


def _whole(*values: Fraction) -> tuple[list[int], int]:
    """The values times their common denominator, and the denominator."""
    scale = lcm(*(value.denominator for value in values))
    return [value.numerator * (scale // value.denominator) for value in values], scale
