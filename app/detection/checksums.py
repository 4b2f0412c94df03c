"""Checks of numbers that have a check digit or ranges. Pure.

Each check gets a candidate, in which separators may stand, and returns how many of its bytes are such a number; 0: none. A number
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
_CARD_LENGTHS = range(19, 12, -1)
SPACES = "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
HYPHENS = "\u00ad\u2010\u2011\u2012\u2013\u2014\u2212"
_SEPARATOR = re.compile("|".join((r"[ +-]", "%20", *SPACES, *HYPHENS)).encode())
_HYPHEN = "|".join(("-", *HYPHENS))
_SSN = re.compile(rf"([0-9]{{3}})(?:{_HYPHEN})([0-9]{{2}})(?:{_HYPHEN})([0-9]{{4}})".encode())
_DECIMAL = re.compile(rb"\+[0-9]{1,3}\.[0-9]+")


def card(candidate: bytes) -> int:
    """A payment card number of 13 to 19 digits with a valid Luhn digit."""
    text, ends = _without_separators(candidate)
    digits = [byte - 48 for byte in text]
    for length in _CARD_LENGTHS:
        if length <= len(digits) and _stands_alone(candidate, ends[length - 1]) and _luhn(digits[:length]):
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


def ssn(candidate: bytes) -> int:
    """A US social security number that can have been assigned."""
    parts = _SSN.fullmatch(candidate)
    if parts is None or parts[1] in (b"000", b"666") or parts[2] == b"00" or parts[3] == b"0000":
        return 0
    return len(candidate)


def phone(candidate: bytes) -> int:
    """A phone number: all of the candidate, unless it is a number with decimals."""
    return 0 if _DECIMAL.fullmatch(candidate) else len(candidate)


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
    return end == len(candidate) or _SEPARATOR.match(candidate, end) is not None


def _luhn(digits: list[int]) -> bool:
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
