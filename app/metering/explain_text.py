"""The terms of a change of the spend as sentences. Pure."""

from collections.abc import Callable
from fractions import Fraction

from app.metering import money
from app.metering.explain import Factor, Group, Term

_SUBJECTS = {
    Factor.VOLUME: "requests of {of}",
    Factor.SHARE: "share of {part} in the requests of {of}",
    Factor.REPEATS: "repeats per request of {part} in {of}",
    Factor.PROMPT: "prompt tokens per request of {part} in {of}",
    Factor.CACHED: "cached share of the prompts of {part} in {of}",
    Factor.OUTPUT: "output tokens per request of {part} in {of}",
    Factor.PRICE: "of {part} in {of}",
    Factor.REST: "rounding, and usage without a request, of {part} in {of}",
}
_PRICES = ("input", "cached input", "output")
_PERCENT = (Factor.SHARE, Factor.CACHED)
_MOST_PLACES = 9

Written = Callable[[Fraction, int], str]  # a value, and how many decimal places it has


def sentence(term: Term, currency: str = "USD", of: str = "workflow") -> str:
    """What changed and what it cost: requests of workflow 'x' grew from 1,200 to 3,400: +$12.10.

    `of`: what takes the place of the workflow, such as endpoint.
    """
    return f"{cause(term, currency, of)}: {money.change(term.amount, currency)}"


def cause(term: Term, currency: str = "USD", of: str = "workflow") -> str:
    """What changed."""
    subject = _SUBJECTS[term.factor].format(of=f"{of} {term.group.workflow!r}", part=_part(term.group))
    if term.factor is Factor.REST:
        return subject
    if term.factor is Factor.PRICE:
        return f"{_price_changes(term, currency)} per million tokens {subject}"
    return f"{subject} {_from_to(term.before[0], term.after[0], _percent if term.factor in _PERCENT else _number)}"


def _price_changes(term: Term, currency: str) -> str:
    pairs = zip(_PRICES, term.before, term.after, strict=True)
    return ", ".join(f"{name} price {_from_to(old, new, _price(currency))}" for name, old, new in pairs if old != new)


def _part(group: Group) -> str:
    return f"model {group.model!r}" + (f" ({group.kind})" if group.kind else "")


def _from_to(old: Fraction, new: Fraction, written: Written) -> str:
    """Both values, with so many decimal places that they differ from each other and from 0."""
    larger = max(abs(old), abs(new))
    places = 0 if larger >= 100 else 1 if larger >= 10 else 2
    values = {old, new, Fraction()}
    while places < _MOST_PLACES and len({written(value, places) for value in values}) < len(values):
        places += 1
    return f"{'grew' if new > old else 'fell'} from {written(old, places)} to {written(new, places)}"


def _number(value: Fraction, places: int) -> str:
    text = f"{float(value):,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def _percent(value: Fraction, places: int) -> str:
    return f"{_number(100 * value, places - 2 if places > 2 else 0)} %"


def _price(currency: str) -> Written:
    """Of a million tokens, from 10^-12 of the currency for one."""
    return lambda value, places: money.shown(round(value * 1000), currency, max(places, 2))
