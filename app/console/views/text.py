"""Numbers and foreign texts as a page prints them. Pure."""

import math
import unicodedata
from collections.abc import Sequence

MOST_BYTES = 65_536  # of a text that a model or a caller wrote
_KEPT = {"\n", "\t"}
# Format characters without which whole scripts and emoji would fall apart; they cannot reorder a text.
_JOINERS = {"\u200c", "\u200d"}
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
NBSP = "\u00a0"
_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k"))
_LEAST_MONEY = 1e-6
_DIGITS = (0, 2, 4, 6, 8)  # behind the point
_CURRENCIES = {"USD": "$", "EUR": "€", "GBP": "£"}


def inert(given: str | bytes | None, most: int = MOST_BYTES) -> tuple[str, int]:
    """A foreign text that can be shown: what hides or reorders characters is spelled out, and it is cut after `most` bytes.

    Returns the text and how many bytes were left out. The template escapes it.
    """
    if given is None:
        return "", 0
    raw = given if isinstance(given, bytes) else given.encode("utf-8", "surrogatepass")
    kept = raw[:most].decode("utf-8", "replace" if len(raw) <= most else "ignore")
    return "".join(map(_visible, kept)), max(0, len(raw) - most)


def _visible(character: str) -> str:
    if character in _KEPT or character in _JOINERS or unicodedata.category(character) not in _HIDDEN:
        return character
    return f"⟨U+{ord(character):04X}⟩"


def count(number: float | None) -> str:
    """A whole number with its thousands apart; unknown: a dash."""
    return "–" if number is None else f"{number:,.0f}"


def si(number: float | None) -> tuple[str, str]:
    """A large number as three digits and its unit: ("138", "M"), ("4.3", "k"), ("820", "")."""
    if number is None:
        return "–", ""
    for step, unit in _STEPS:
        if abs(number) >= step or (unit == "k" and abs(number) >= 1000):
            return _three(number / (1e3 if unit == "k" else step)), unit
    return (f"{number:.0f}" if abs(number) >= 10 or float(number).is_integer() else f"{number:.1f}"), ""


def _three(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.1f}".removesuffix(".0")


def compact(number: float | None) -> str:
    """The same in one word: 138 M, 4.3k, 820."""
    digits, unit = si(number)
    return f"{digits}{unit}" if unit in ("", "k") else f"{digits}{NBSP}{unit}"


def size(number: float | None) -> str:
    """So many bytes: 962 kB, 61 MB."""
    digits, unit = si(number)
    return f"{digits}{NBSP}{unit}B"


def money(amount: float | None, currency: str | None = "USD") -> str:
    """An amount of money; below a cent with as many digits as it needs. Unknown: a dash."""
    if amount is None:
        return "–"
    if 0 < abs(amount) < _LEAST_MONEY:
        return f"below {money(_LEAST_MONEY, currency)}"
    return _money(amount, 2 if amount == 0 or abs(amount) >= 0.01 else 4 if abs(amount) >= 0.0001 else 6, currency)


def money_scale(amounts: Sequence[float], currency: str | None = "USD") -> list[str]:
    """Amounts beside a scale, all with as many digits as the one that needs most: $5 and $10; $0.0010 and $0.0020."""
    digits = next((n for n in _DIGITS if all(math.isclose(round(each, n), each) for each in amounts)), _DIGITS[-1])
    return [_money(each, digits, currency) for each in amounts]


def _money(amount: float, digits: int, currency: str | None) -> str:
    sign, number = _CURRENCIES.get(currency or "USD"), f"{amount:,.{digits}f}"
    return f"{sign}{number}" if sign else f"{number}{NBSP}{currency}"


def percent(share: float) -> str:
    """A share of one: 76.6, 73, 0.3; never 100 or 0 unless it is."""
    value = share * 100
    if 99.9 < value < 100:
        return "99.9"
    if 0 < value < 0.1:
        return "0.1"
    return f"{value:.0f}" if value >= 99.95 or value == 0 or float(f"{value:.1f}").is_integer() else f"{value:.1f}"


def short(identity: object) -> str:
    """The first eight characters of an id."""
    return str(identity)[:8]


def plural(number: int, thing: str, things: str | None = None) -> str:
    """A count and its noun: one batch, 38 batches."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


_PARTS = {"api": "API", "gpu-worker": "GPU worker"}  # as people write them; the others only begin with a capital


def about_part(words: str) -> str:
    """A sentence that may begin with the name of a part of Slackwater."""
    name, space, rest = words.partition(" ")
    return f"{_PARTS[name]}{space}{rest}" if name in _PARTS else sentence(words)


def sentence(words: str) -> str:
    """The words with a capital at their begin, unless they begin with a name, as engine-0 is one."""
    if any(character.isdigit() for character in words.partition(" ")[0]):
        return words
    return words[:1].upper() + words[1:]
