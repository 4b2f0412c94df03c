"""Checks of what a pattern alone cannot tell: check digits, issuers, lengths, ranges, endings. Pure.

Each check gets a candidate, in which separators may stand, and returns how many of its bytes are such a value; 0: none. A number
may be followed by further digits or words that the candidate has, too.
"""

import re

# Characters of an IBAN by country: SWIFT, IBAN Registry, release 99.
_IBAN_LENGTHS = {
    country: length
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD FK",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK MN",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ OM TL SO",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
    for country in countries.split()
}
# By the first digits of a card, the lengths that its issuer gives (ISO/IEC 7812-1, and the issuers' own pages).
_ISSUERS: tuple[tuple[re.Pattern[bytes], frozenset[int]], ...] = tuple(
    (re.compile(prefix), frozenset(lengths))
    for prefix, lengths in (
        (rb"4", (13, 16, 19)),  # Visa
        (rb"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", (16,)),  # Mastercard
        (rb"3[47]", (15,)),  # American Express
        (rb"6011|64[4-9]|65", range(16, 20)),  # Discover
        (rb"30[0-5]|309|36|3[89]", range(14, 20)),  # Diners Club
        (rb"35(?:2[89]|[3-8])", range(16, 20)),  # JCB
        (rb"62|81", range(16, 20)),  # UnionPay
        (rb"50|5[678]|6[0-9]", range(13, 20)),  # Maestro, Elo, RuPay and others
        (rb"220[0-4]", range(16, 20)),  # Mir
    )
)
_CARD_LENGTHS = range(19, 12, -1)
_FIRST_GROUP = re.compile(rb"[0-9]{4}")
# Endings of files and of units that are no top-level domain.
NO_DOMAINS = frozenset(
    (
        *(
            "bak",
            "bin",
            "bmp",
            "cfg",
            "conf",
            "css",
            "csv",
            "doc",
            "docx",
            "exe",
            "gif",
            "gz",
            "htm",
            "html",
            "ico",
            "ini",
        ),
        *(
            "ipynb",
            "jpeg",
            "jpg",
            "js",
            "json",
            "jsonl",
            "jsx",
            "lock",
            "log",
            "odt",
            "parquet",
            "pdf",
            "png",
            "ppt",
            "pptx",
        ),
        *(
            "sql",
            "svg",
            "tar",
            "tgz",
            "toml",
            "ts",
            "tsv",
            "tsx",
            "txt",
            "wav",
            "webp",
            "xls",
            "xlsx",
            "xml",
            "yaml",
            "yml",
        ),
        *("mount", "service", "socket", "target", "timer"),
    )
)
SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
HYPHENS = "\u00ad\u2010\u2011\u2012\u2013\u2014\u2212"
_SEPARATOR = re.compile("|".join((r"[ .+-]", "%20", "%2[Dd]", *SPACES, *HYPHENS)).encode())
_HYPHEN = "|".join(("-", *HYPHENS))
_SSN = re.compile(rf"([0-9]{{3}})(?:{_HYPHEN})([0-9]{{2}})(?:{_HYPHEN})([0-9]{{4}})".encode())
_AMERICAN, _SHORTEST_ABROAD = 11, 11  # digits, with the country's code; with 00 and that
_LATEST, _VARIED = 16, 4  # of the last characters of a key, so many are different
_LEAST_OF_PEM = 6  # characters between its lines
_IBAN_BEGUN = re.compile(rb"(?:\A|[^A-Za-z0-9])([A-Z]{2})(?:[0-9]{2}[ -]?)?\Z")
_PEM_BODY = re.compile(rb"-----[A-Z ]*-----|[^A-Za-z0-9+/=]")  # what is none of it
_GOES_ON = re.compile(rb"[.-][0-9]")
_DECIMAL = re.compile(rb"\+[0-9]{1,3}\.[0-9]+")
_COORDINATES = re.compile(rb"[+-][0-9]{2}\.[0-9]{3,}-[0-9]{3}\.[0-9]{3,}")  # ISO 6709: latitude and longitude


def card(candidate: bytes) -> int:
    """A payment card number of 13 to 19 digits with a valid Luhn digit."""
    text, ends = _without_separators(candidate)
    if len(candidate) > len(text) and not _FIRST_GROUP.match(candidate):
        return 0
    digits = [byte - 48 for byte in text]
    for length in _CARD_LENGTHS:
        if length > len(digits) or not _stands_alone(candidate, ends[length - 1]) or not _luhn(digits[:length]):
            continue
        if any(length in lengths and prefix.match(text) for prefix, lengths in _ISSUERS):
            return ends[length - 1]
    return 0


def iban(candidate: bytes) -> int:
    """An IBAN of the length that its country has, whose remainder by 97 is 1."""
    length = _IBAN_LENGTHS.get(candidate[:2].decode().upper(), 0)
    text, ends = _without_separators(candidate)
    if not length or length > len(ends) or not _stands_alone(candidate, ends[length - 1]):
        return 0
    compact = text[:length].decode().upper()
    number = int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4]))
    return ends[length - 1] if number % 97 == 1 else 0


def is_of_iban(before: bytes) -> bool:
    """Whether digits behind this text belong to what is written as an IBAN, right or wrong."""
    found = _IBAN_BEGUN.search(before)
    return found is not None and found[1].decode() in _IBAN_LENGTHS


def ssn(candidate: bytes) -> int:
    """A US social security number that can have been assigned."""
    parts = _SSN.fullmatch(candidate)
    if parts is None or parts[1] in (b"000", b"666") or parts[2] == b"00" or parts[3] == b"0000":
        return 0
    return len(candidate)


def phone(candidate: bytes) -> int:
    """A phone number: all of the candidate, unless it is a number with decimals, a place, or too short behind +1."""
    if _DECIMAL.fullmatch(candidate) or _COORDINATES.fullmatch(candidate):
        return 0
    digits = re.sub(rb"%2[Bb]|%20|[^0-9]", b"", candidate)
    if digits.startswith(b"00") and len(digits) < _SHORTEST_ABROAD:
        return 0
    international = candidate.startswith((b"+", b"%2"))
    return 0 if international and digits.startswith(b"1") and len(digits) != _AMERICAN else len(candidate)


def email(candidate: bytes) -> int:
    """An address. What ends like a file, or like a unit of systemd, is one without this ending, if its host has another dot."""
    whole, _, ending = candidate.rpartition(b".")
    if ending.decode().lower() not in NO_DOMAINS:
        return len(candidate)
    name, dot, top = re.split(b"@|%40", whole)[-1].rpartition(b".")
    return email(whole) if name and dot and top.decode().isalpha() else 0


def secret(candidate: bytes) -> int:
    """A key, unless it is made of words or of one character, as an example is."""
    if candidate.startswith(b"-----"):
        return len(candidate) if len(_PEM_BODY.sub(b"", candidate)) >= _LEAST_OF_PEM else 0
    varied = len(set(candidate[-_LATEST:])) >= _VARIED and re.search(rb"[0-9A-Z]", candidate) is not None
    return len(candidate) if varied else 0


def _without_separators(candidate: bytes) -> tuple[bytes, list[int]]:
    """The characters of a candidate, and where each ends in it."""
    text, ends, place = bytearray(), list[int](), 0
    for found in _SEPARATOR.finditer(candidate):
        text += candidate[place : found.start()]
        ends += range(place + 1, found.start() + 1)
        place = found.end()
    text += candidate[place:]
    ends += range(place + 1, len(candidate) + 1)
    return bytes(text), ends


def _stands_alone(candidate: bytes, end: int) -> bool:
    """Whether what ends here is not the beginning of a longer word."""
    return end == len(candidate) or (
        _SEPARATOR.match(candidate, end) is not None and not _GOES_ON.match(candidate, end)
    )


def _luhn(digits: list[int]) -> bool:
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
