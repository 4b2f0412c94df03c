"""Families of texts with and without sensitive values that were looked at while the detectors were tuned. See unseen_families."""

from collections.abc import Callable, Mapping
from random import Random

from app.detection.checksums import HYPHENS, SPACES

True_ = Callable[[Random], tuple[str, str, str]]
False_ = Callable[[Random], str]
_WORDS = [
    "tide",
    "harbour",
    "ledger",
    "copper",
    "window",
    "seven",
    "river",
    "lantern",
    "module",
    "packet",
    "orchard",
    "signal",
]


def words(random: Random, count: int = 5) -> str:
    return " ".join(random.choices(_WORDS, k=count))


def digits(random: Random, count: int, first: str = "123456789") -> str:
    return random.choice(first) + "".join(random.choices("0123456789", k=count - 1))


def luhn(digits: str) -> str:
    """The digits with the check digit of a card."""
    doubled = [int(each) * (2 - place % 2) for place, each in enumerate(reversed(digits))]
    return digits + str(-sum(each - 9 * (each > 9) for each in doubled) % 10)


def card(random: Random) -> str:
    prefix, length = random.choice(
        (("4", 16), ("51", 16), ("55", 16), ("37", 15), ("6011", 16), ("2221", 16), ("4", 13))
    )
    return luhn(prefix + digits(random, length - 1 - len(prefix)))


def iban(random: Random) -> str:
    country, length = random.choice((("DE", 22), ("FR", 27), ("NO", 15), ("ES", 24), ("CH", 21)))
    body = digits(random, length - 4)
    number = int(body + "".join(str(int(each, 36)) for each in country) + "00")
    return f"{country}{98 - number % 97:02}{body}"


def grouped(random: Random, text: str, between: str, size: int = 4) -> str:
    return between.join(text[at : at + size] for at in range(0, len(text), size))


def within(random: Random, kind: str, value: str) -> tuple[str, str, str]:
    return f"{words(random)}: {value}, {words(random)}.", kind, value


def address(random: Random) -> str:
    return f"{random.choice(_WORDS)}.{random.choice(_WORDS)}{random.randint(1, 99)}"


def american(random: Random) -> str:
    form = random.choice(("({}) {}-{}", "{}.{}.{}", "1-{}-{}-{}"))
    return form.format(digits(random, 3, "23456789"), digits(random, 3), digits(random, 4))


def social(random: Random) -> str:
    return f"{random.randint(101, 665)}{random.choice('-' + HYPHENS[2])}12-{digits(random, 4)}"


TRUE: Mapping[str, True_] = {
    "a mail": lambda r: within(
        r, "email", f"{address(r)}@{r.choice(_WORDS)}.{r.choice(('com', 'co.uk', 'technology'))}"
    ),
    "a mail in a URL": lambda r: within(r, "email", f"{address(r)}%40{r.choice(_WORDS)}.example"),
    "a mail of an international domain": lambda r: within(
        r, "email", f"{address(r)}@b\u00fccher-{r.choice(_WORDS)}.de"
    ),
    "a mail in Chinese": lambda r: (f"\u8bf7\u8054\u7cfb{(v := address(r) + '@x.com')}\u8c22\u8c22", "email", v),
    "a card": lambda r: within(r, "card", card(r)),
    "a card in groups": lambda r: within(r, "card", grouped(r, card(r), r.choice(" -" + SPACES + HYPHENS))),
    "a card behind a word": lambda r: (f"card{(v := card(r))} {words(r)}", "card", v),
    "an IBAN": lambda r: within(r, "iban", iban(r)),
    "an IBAN in groups": lambda r: within(r, "iban", grouped(r, iban(r), r.choice(" " + SPACES))),
    "a phone": lambda r: within(r, "phone", f"+{digits(r, 2)} {digits(r, 3)}{r.choice(' /-.')}{digits(r, 6)}"),
    "a phone with a trunk zero": lambda r: within(r, "phone", f"+44 (0)20 {digits(r, 4)} {digits(r, 4)}"),
    "a phone of North America": lambda r: within(r, "phone", american(r)),
    "a number of social security": lambda r: within(r, "ssn", social(r)),
}
FALSE: Mapping[str, False_] = {
    "words": lambda r: words(r, 30),
    "a card that is none": lambda r: f"{words(r)} {(c := card(r))[:-1]}{(int(c[-1]) + 1) % 10} {words(r)}",
    "an IBAN that is none": lambda r: f"{words(r)} {(i := iban(r))[:2]}{(int(i[2:4]) % 97 + 2):02}{i[4:]}",
    "decimals": lambda r: f"{r.random():.18f} {r.random() * 100:.12f} +{r.random() * 90:.6f}",
    "a version of a package": lambda r: f"npm i @scope/{r.choice(_WORDS)}@{r.randint(0, 20)}.7.{r.randint(0, 99)}",
    "times": lambda r: f"2026-{r.randint(1, 12):02}-{r.randint(1, 28):02}T10:{r.randint(0, 59):02}:00+01:00 {words(r)}",
}
