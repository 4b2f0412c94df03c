"""Why a day cost more or less than the same day a week before: the terms as a bridge from one amount to the other. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from app.console.views import text
from app.metering import explain_text, money
from app.metering.explain import Factor, Term
from app.metering.explained import Explanation

_SHOWN = 6  # terms; the rest are one step
_NAMES = {
    Factor.VOLUME: ("More requests", "Fewer requests"),
    Factor.SHARE: ("Another mix", "Another mix"),
    Factor.REPEATS: ("More retries", "Fewer retries"),
    Factor.PROMPT: ("Longer prompts", "Shorter prompts"),
    Factor.CACHED: ("Less from cache", "More from cache"),
    Factor.OUTPUT: ("Longer answers", "Shorter answers"),
    Factor.PRICE: ("Higher price", "Lower price"),
    Factor.REST: ("Rounding", "Rounding"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One bar of the bridge, in per cent, and its words."""

    name: str
    amount: str
    words: str
    kind: str
    x: float
    width: float
    total: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """The bridge. `first`: the sentence about the largest term, `about`: its group. Amounts: 10^-9 of the currency."""

    day: date
    title: str
    before: int
    after: int
    first: str
    about: str | None
    steps: list[Step]
    cli: str


def of(found: Explanation, by: str, day: date) -> Change:
    """The bridge of an explanation, by `by`."""
    earlier = day - timedelta(days=7)
    more = "more" if found.after > found.before else "less" if found.after < found.before else "as much"
    leading = found.terms[:1]
    first = text.sentence(explain_text.sentence(leading[0], found.currency, by)) + "." if leading else ""
    title = f"Why {day:%A} the {day.day}{_ordinal(day.day)} cost {more}"
    about = leading[0].group.workflow if leading else None
    command = f"slackwater spend explain {earlier} {day} --by {by}"
    return Change(day, title, found.before, found.after, first, about, _steps(found, by, earlier, day), command)


def _steps(found: Explanation, by: str, earlier: date, day: date) -> list[Step]:
    top = max([found.before, found.after, *_levels(found.before, found.terms)], default=0) or 1
    steps = [_total(_named(earlier), found.before, top, found.currency)]
    level = found.before
    for term in found.terms[:_SHOWN]:
        steps.append(
            _step(
                _NAMES[term.factor][term.amount < 0],
                term.amount,
                level,
                top,
                found.currency,
                explain_text.cause(term, found.currency, by),
            )
        )
        level += term.amount
    rest = sum(term.amount for term in found.terms[_SHOWN:])
    if rest:
        many = len(found.terms) - _SHOWN
        steps.append(_step("Everything else", rest, level, top, found.currency, text.plural(many, "smaller reason")))
    words = f"{found.after / found.before - 1:+.0%}".replace("-", "−") if found.before else ""
    return [*steps, _total(_named(day), found.after, top, found.currency, words)]


def _levels(level: int, terms: Sequence[Term]) -> list[int]:
    levels = []
    for term in terms:
        level += term.amount
        levels.append(level)
    return levels


def _total(name: str, amount: int, top: int, currency: str, words: str = "") -> Step:
    return Step(name, money.shown(amount, currency), words, "c1", 0.0, round(100 * amount / top, 2), total=True)


def _step(name: str, amount: int, level: int, top: int, currency: str, words: str) -> Step:
    low, width = min(level, level + amount), abs(amount)
    shown = money.change(amount, currency).replace("-", "−")
    kind = "m-up" if amount > 0 else "m-cut"
    return Step(name, shown, words, kind, round(100 * max(low, 0) / top, 2), max(round(100 * width / top, 2), 0.4))


def _named(day: date) -> str:
    return f"{day:%a} {day.day} {day:%b}"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return "th"
    return {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
