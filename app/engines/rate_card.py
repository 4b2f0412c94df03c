"""The rate card of a model: what a million of its tokens cost, by kind of work, and from when on. Pure.

A kind of work without prices of its own costs what the kind does that it falls back on: idle as batch, batch and flex as calls.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

_STRICT = ConfigDict(extra="forbid")
Money = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
Currency = Annotated[str, Field(pattern="^[A-Z]{3}$")]


class Work(StrEnum):
    """What a price is for.

    sync    requests that are answered at once, also through doors
    flex    requests whose callers wait while they are queued
    batch   queued work that has to be done in time, and stages of pipelines
    idle    queued work without a completion window, which waits for idle engines as long as necessary
    """

    SYNC = "sync"
    FLEX = "flex"
    BATCH = "batch"
    IDLE = "idle"


def queued_work(*, expires: bool) -> Work:
    """The kind of queued work nobody waits for. `expires`: it has a completion window."""
    return Work.BATCH if expires else Work.IDLE


_LIKE: Mapping[Work, Sequence[Work]] = {
    Work.SYNC: (Work.SYNC,),
    Work.FLEX: (Work.FLEX, Work.SYNC),
    Work.BATCH: (Work.BATCH, Work.SYNC),
    Work.IDLE: (Work.IDLE, Work.BATCH, Work.SYNC),
}
ALWAYS = datetime.min.replace(tzinfo=UTC)


def _moment(given: object) -> datetime:
    """A day begins at midnight UTC. A time needs its offset."""
    if isinstance(given, datetime):
        if given.tzinfo is None:
            raise ValueError("a time needs an offset, as in 2026-12-01T00:00:00+01:00; or write the day only")
        return given.astimezone(UTC)
    if isinstance(given, date):
        return datetime.combine(given, time(), UTC)
    raise ValueError("must be a day, without quotes: from = 2026-12-01")


def _some(work: tuple[Work, ...]) -> tuple[Work, ...]:
    if not work or len(set(work)) < len(work):
        raise ValueError("must name some kinds of work, each once")
    return work


@dataclass(frozen=True)
class Rate:
    """A line of the rate card, in the currency of the model's other prices. `since`: when it begins to hold."""

    __pydantic_config__ = _STRICT

    work: Annotated[tuple[Work, ...], AfterValidator(_some)]
    input: Money
    cached_input: Money
    output: Money
    currency: Currency | None = None
    since: Annotated[datetime, BeforeValidator(_moment), Field(alias="from")] = ALWAYS


def checked(lines: Sequence[Rate]) -> tuple[Rate, ...]:
    """The lines of a card, each in its currency: that of the first. Raises ValueError: they contradict each other."""
    currency = next((rate.currency for rate in lines if rate.currency), "USD")
    if other := next((rate.currency for rate in lines if rate.currency not in (None, currency)), None):
        raise ValueError(f"one is in {other}, another in {currency}; all prices of a model are in one currency")
    known: set[tuple[Work, datetime]] = set()
    for work, since in ((work, rate.since) for rate in lines for work in rate.work):
        if (work, since) in known:
            when = "always" if since == ALWAYS else f"from {since:%Y-%m-%d}"
            raise ValueError(f"{work} work has two prices that hold {when}; leave one of them out")
        known.add((work, since))
    return tuple(replace(rate, currency=currency) for rate in lines)


def holding(lines: Sequence[Rate], work: Work, at: datetime) -> Rate | None:
    """The line that holds for this kind of work at this moment; None: it has no price yet."""
    for like in _LIKE[work]:
        begun = [rate for rate in lines if like in rate.work and rate.since <= at]
        if begun:
            return max(begun, key=lambda rate: rate.since)
    return None


class Held(NamedTuple):
    """From when until when a line of the card holds for a kind of work. `until` None: no other price follows."""

    work: Work
    since: datetime
    until: datetime | None
    rate: Rate


def history(lines: Sequence[Rate]) -> Iterator[Held]:
    """What each kind of work costs and did cost, the oldest price first."""
    for work in Work:
        held: list[tuple[datetime, Rate]] = []
        for since in sorted({rate.since for rate in lines}):
            rate = holding(lines, work, since)
            if rate is not None and (not held or held[-1][1] is not rate):
                held.append((since, rate))
        ends = [since for since, _ in held[1:]]
        yield from (Held(work, since, end, rate) for (since, rate), end in zip(held, [*ends, None], strict=True))
