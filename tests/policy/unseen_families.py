# ruff: noqa
# fmt: off
"""A second held-out corpus for detectors of sensitive values in prompts: generated families of TRUE and FALSE texts.

Every TRUE text holds exactly one sensitive value, given beside it exactly as it stands in the text; a FALSE text
holds none, but looks as if it might. The contexts and spellings differ from those of the first held-out corpus. The
writer of this file has not seen the detectors: measure with it, do not tune with it.

Kinds: email, phone (international with + or 00 and a country code, or North American with separators), card, iban,
ssn, secret, jwt. All values are made up from random numbers; check digits are computed, so they are really valid.
The texts depend on nothing but the given Random.
"""

import base64
import hashlib
import hmac
import json
import re
import string
import zlib
from collections.abc import Callable, Mapping, Sequence
from random import Random

True_ = Callable[[Random], tuple[str, str, str]]  # text, kind, the sensitive value exactly as it stands in the text
False_ = Callable[[Random], str]


# ---------------------------------------------------------------------------------------------------------------
# Digits, letters and check digits

_ALNUM = string.ascii_letters + string.digits
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_NBSP, _NNBSP, _THIN, _FIGURE = "\u00a0", "\u202f", "\u2009", "\u2007"
_NBHYPHEN, _HYPHEN, _EN_DASH = "\u2011", "\u2010", "\u2013"


def _take(rng: Random, alphabet: str, length: int) -> str:
    return "".join(rng.choice(alphabet) for _ in range(length))


def _digits(rng: Random, length: int) -> str:
    return _take(rng, string.digits, length)


def _number(rng: Random, length: int) -> str:
    """Digits of which the first is not 0."""
    return rng.choice("123456789") + _digits(rng, length - 1)


def _hex(rng: Random, length: int) -> str:
    return _take(rng, "0123456789abcdef", length)


def _luhn_sum(digits: str) -> int:
    total = 0
    for place, char in enumerate(reversed(digits)):
        value = int(char) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total


def _luhn_ok(digits: str) -> bool:
    return _luhn_sum(digits) % 10 == 0


def _with_luhn(payload: str) -> str:
    return payload + str(-_luhn_sum(payload + "0") % 10)


def _mod97(text: str) -> int:
    return int("".join(str(int(char, 36)) for char in text.upper())) % 97


def _split(text: str, sizes: Sequence[int]) -> list[str]:
    """Cut text into pieces of these sizes; what is left over is the last piece."""
    pieces: list[str] = []
    at = 0
    for size in sizes:
        pieces.append(text[at:at + size])
        at += size
    pieces.append(text[at:])
    return [piece for piece in pieces if piece]


def _fours(text: str) -> list[str]:
    return _split(text, [4] * (len(text) // 4))


# ---------------------------------------------------------------------------------------------------------------
# Words and small pieces without any value

_GIVEN = ("Leila", "Marek", "Hannah", "Ravi", "Yuki", "Carlos", "Eszter", "Nils", "Amara", "Giorgos", "Elif", "Mei", "Patrick",
          "Sanna", "Ivana", "Samuel")
_FAMILY = ("Brandt", "Osei", "Horvath", "Lopez", "Sato", "Eriksen", "Novak", "Mansour", "Keller", "Dubois", "Ivanov", "Costa",
           "Yilmaz", "Fischer", "Bianchi", "Murphy")
_ITEM = ("bracket", "gasket", "sensor", "relay", "valve", "washer", "filter", "hinge", "bearing", "spring", "nozzle", "cable")
_SERVICE = ("billing", "checkout", "ledger", "courier", "inventory", "mailer", "search", "gateway", "profile", "reports")
_CITY = ("Lyon", "Graz", "Porto", "Bergen", "Cork", "Leeds", "Ghent", "Turin", "Brno", "Malmo", "Krakow", "Austin")
_ASK = ("Please turn this into a polite reply:", "Summarise this ticket:", "Translate into French:", "What does this mean?",
        "Fix the format of this:", "Write a test for it:", "Shorten to two lines:", "Is anything missing here?")
_AFTER = ("Thanks in advance!", "Keep the names as they are.", "Only the result, please.", "No markdown.", "It is for my boss.")
_LATIN_CAPITALS = string.ascii_uppercase + string.digits


def _given(rng: Random) -> str:
    return rng.choice(_GIVEN)


def _person(rng: Random) -> str:
    return f"{rng.choice(_GIVEN)} {rng.choice(_FAMILY)}"


def _date(rng: Random) -> str:
    return f"{rng.randint(2012, 2026)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def _clock(rng: Random) -> str:
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"


def _price(rng: Random) -> str:
    return f"{rng.randint(1, 999)}.{rng.randint(0, 99):02}"


def _fill(rng: Random, kind: str, value: str, *templates: str) -> tuple[str, str, str]:
    """One of the templates with the value in place of its one §."""
    before, after = rng.choice(templates).split("§")
    return before + value + after, kind, value


def _asked(rng: Random, kind: str, value: str, *templates: str) -> tuple[str, str, str]:
    """The same, sometimes with what the user asks before it or after it."""
    text, _, _ = _fill(rng, kind, value, *templates)
    if rng.random() < 0.4:
        text = f"{rng.choice(_ASK)}{rng.choice((' ', chr(10), chr(10) * 2))}{text}"
    if rng.random() < 0.3:
        text += rng.choice(("\n", "\n\n")) + rng.choice(_AFTER)
    return text, kind, value


# ---------------------------------------------------------------------------------------------------------------
# Valid numbers of every kind

_Plan = tuple[str, str, int, str]  # country code, area or mobile code, digits of the rest, first digits allowed for the rest
_PLANS: tuple[_Plan, ...] = (
    ("49", "30", 8, "23456"), ("49", "40", 7, "2345"), ("49", "89", 8, "1234"), ("49", "221", 7, "2345"),
    ("49", "711", 6, "2346"),
    ("49", "151", 8, "12456"), ("49", "170", 7, "23456"), ("49", "176", 8, "23456"), ("44", "20", 8, "378"),
    ("44", "161", 7, "2348"),
    ("44", "7911", 6, "1234"), ("44", "7456", 6, "2345"), ("33", "1", 8, "4"), ("33", "6", 8, "1234567"), ("33", "7", 8, "5678"),
    ("39", "06", 8, "3456"), ("39", "02", 8, "3456"), ("39", "347", 7, "1234567"), ("34", "91", 7, "2345"),
    ("34", "612", 6, "2345"),
    ("31", "20", 7, "23456"), ("31", "6", 8, "1245"), ("32", "2", 7, "2345"), ("32", "470", 6, "1234"), ("41", "44", 7, "2345"),
    ("41", "79", 7, "23456"), ("43", "1", 7, "2345"), ("43", "664", 7, "12345"), ("45", "31", 6, "12345"), ("46", "8", 7, "4567"),
    ("46", "70", 7, "2345"), ("47", "91", 6, "2345"), ("47", "22", 6, "3456"), ("48", "22", 7, "3456"), ("48", "601", 6, "2345"),
    ("351", "21", 7, "2345"), ("351", "912", 6, "2345"), ("353", "86", 7, "2345"), ("358", "40", 7, "1245"),
    ("420", "602", 6, "2345"),
    ("36", "30", 7, "2345"), ("30", "210", 7, "3456"), ("30", "694", 7, "2345"), ("90", "532", 7, "2345"),
    ("7", "495", 7, "2356"),
    ("7", "916", 7, "1234"), ("380", "67", 7, "2345"), ("86", "138", 8, "0123"), ("86", "10", 8, "568"), ("81", "3", 8, "356"),
    ("81", "90", 8, "1234"), ("82", "10", 8, "2345"), ("91", "98", 8, "1234567"), ("61", "2", 8, "89"), ("61", "412", 6, "2345"),
    ("64", "21", 7, "2345"), ("55", "11", 9, "9"), ("52", "55", 8, "1235"), ("54", "11", 8, "4"), ("27", "82", 7, "3456"),
    ("234", "803", 7, "2345"), ("254", "722", 6, "2345"), ("20", "10", 8, "0126"), ("971", "50", 7, "2345"),
    ("966", "50", 7, "2345"),
    ("972", "54", 7, "2345"), ("65", "9", 7, "1234"), ("852", "9", 7, "1234"), ("62", "812", 8, "1234"), ("63", "917", 7, "2345"),
    ("66", "81", 7, "2345"), ("84", "90", 7, "2345"))
_AREA = ("212", "646", "415", "312", "206", "305", "416", "604", "514", "702", "303", "617", "919", "213", "787", "800", "888",
         "907", "808", "902", "254", "470", "385")


def _plan(rng: Random, countries: frozenset[str] | None = None) -> tuple[str, str, str]:
    """Country code, area code and the rest of a number of one of these countries."""
    cc, area, length, firsts = rng.choice([plan for plan in _PLANS if countries is None or plan[0] in countries])
    return cc, area, rng.choice(firsts) + _digits(rng, length - 1)


def _rest(rng: Random, rest: str, separator: str) -> str:
    """The rest of a number, cut into groups as people do."""
    shapes = {6: ((3,), (2, 2), ()), 7: ((3,), (3, 2), (4,), ()), 8: ((4,), (2, 2, 2), (3,), ()), 9: ((5,), (3, 3))}
    return separator.join(_split(rest, rng.choice(shapes[len(rest)])))


def _north_american(rng: Random) -> tuple[str, str, str]:
    while True:
        office = rng.choice("23456789") + _digits(rng, 2)
        if office[1:] != "11" and office != "555":
            return rng.choice(_AREA), office, _digits(rng, 4)


_ISSUERS: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
    (("4",), (16, 16, 16, 13, 19)), (("51", "52", "53", "54", "55"), (16,)), (("2221", "2300", "2545", "2699", "2720"), (16,)),
    (("34", "37"), (15,)), (("300", "305", "36", "38"), (14,)), (("6011", "644", "649", "65"), (16, 16, 19)),
    (("3528", "3545", "3589"), (16,)), (("62",), (16, 17, 18, 19)),
    (("5018", "5020", "5038", "6304", "6759", "6761", "6763"), (16, 18, 19)))


def _card(rng: Random, lengths: Sequence[int] = ()) -> str:
    """A card number of one of these lengths, or of any."""
    choices = [(prefixes, size) for prefixes, sizes in _ISSUERS for size in sizes if not lengths or size in lengths]
    prefixes, length = rng.choice(choices)
    prefix = rng.choice(prefixes)
    return _with_luhn(prefix + _digits(rng, length - len(prefix) - 1))


def _card_groups(digits: str) -> list[str]:
    if len(digits) in (14, 15):
        return _split(digits, (4, 6))
    if len(digits) == 13:
        return _split(digits, (4, 3, 3))
    return _fours(digits)


_IBAN: Mapping[str, str] = {  # the part after the check digits: n digits, a capital letters, c either
    "AD": "8n12c", "AE": "19n", "AT": "16n", "BA": "16n", "BE": "12n", "BG": "4a6n8c", "BR": "23n1a1c", "CH": "5n12c",
    "CR": "18n",
    "CY": "8n16c", "CZ": "20n", "DE": "18n", "DK": "14n", "DO": "4c20n", "EE": "16n", "ES": "20n", "FI": "14n", "FR": "10n11c2n",
    "GB": "4a14n", "GE": "2a16n", "GR": "7n16c", "HR": "17n", "HU": "24n", "IE": "4a14n", "IL": "19n", "IS": "22n",
    "IT": "1a10n12c",
    "JO": "4a4n18c", "KW": "4a22c", "KZ": "3n13c", "LB": "4n20c", "LI": "5n12c", "LT": "16n", "LU": "3n13c", "LV": "4a13c",
    "MC": "10n11c2n", "MD": "20c", "ME": "18n", "MK": "3n10c2n", "MT": "4a5n18c", "MU": "4a19n3a", "NL": "4a10n", "NO": "11n",
    "PK": "4a16c", "PL": "24n", "PT": "21n", "QA": "4a21c", "RO": "4a16c", "RS": "18n", "SA": "2n18c", "SE": "20n", "SI": "15n",
    "SK": "20n", "SM": "1a10n12c", "TN": "20n", "TR": "6n16c", "UA": "6n19c"}
_IBAN_LENGTH = {country: 4 + sum(map(int, re.findall(r"\d+", spec))) for country, spec in _IBAN.items()}


def _iban(rng: Random) -> str:
    country = rng.choice(sorted(_IBAN))
    account = ""
    for size, sort in re.findall(r"(\d+)([nac])", _IBAN[country]):
        alphabet = {"n": string.digits, "a": string.ascii_uppercase, "c": string.digits * 6 + string.ascii_uppercase}[sort]
        account += _take(rng, alphabet, int(size))
    return f"{country}{98 - _mod97(account + country + '00'):02}{account}"


def _ssn(rng: Random) -> tuple[str, str, str]:
    while True:
        area, group, serial = rng.randint(1, 899), rng.randint(1, 99), rng.randint(1, 9999)
        if area != 666 and (area, group) not in ((78, 5), (219, 9), (123, 45)):
            return f"{area:03}", f"{group:02}", f"{serial:04}"


def _crc62(text: str) -> str:
    """The six check letters of GitHub's and npm's tokens."""
    number, letters = zlib.crc32(text.encode()), ""
    while number:
        number, place = divmod(number, 62)
        letters = _BASE62[place] + letters
    return letters.rjust(6, "0")


def _checked(rng: Random, prefix: str) -> str:
    body = _take(rng, _ALNUM, 30)
    return f"{prefix}{body}{_crc62(body)}"


def _dashed(rng: Random, length: int) -> str:
    """Letters, digits, - and _, of which neither end is - or _."""
    return _take(rng, _ALNUM, 1) + _take(rng, _ALNUM * 3 + "-_", length - 2) + _take(rng, _ALNUM, 1)


def _pem(rng: Random, newline: str) -> str:
    label, start, size = rng.choice((
        ("RSA PRIVATE KEY", "MIIEpAIBAAKCAQEA", 1192), ("PRIVATE KEY", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj", 1217),
        ("EC PRIVATE KEY", "MHcCAQEEIA==", 121), ("OPENSSH PRIVATE KEY", "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ==", 387),
        ("PRIVATE KEY", "MC4CAQAwBQYDK2VwBCIEIA==", 48)))
    head = base64.b64decode(start)
    body = base64.b64encode(head + rng.randbytes(size - len(head))).decode()
    width = 70 if label.startswith("OPENSSH") else 64
    return newline.join((f"-----BEGIN {label}-----", *_split(body, [width] * (len(body) // width)), f"-----END {label}-----"))


def _b64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _jwt(rng: Random) -> str:
    algorithm = rng.choice(("HS256", "HS256", "RS256", "ES256", "EdDSA", "HS512"))
    header: dict[str, str] = {"alg": algorithm, "typ": "JWT"} if rng.random() < 0.7 else {"typ": "JWT", "alg": algorithm}
    if rng.random() < 0.4:
        header["kid"] = _hex(rng, rng.choice((8, 16, 40)))
    issued = rng.randint(1_400_000_000, 1_790_000_000)
    claims: dict[str, str | int | bool | list[str]] = {"sub": rng.choice((_hex(rng, 12), str(rng.randint(1, 99999)))),
                                                       "iat": issued}
    for key, claim in (("exp", issued + 3600), ("name", _person(rng)), ("admin", rng.random() < 0.5),
                       ("scope", [rng.choice(_SERVICE), "read"])):
        if rng.random() < 0.6:
            claims[key] = claim
    signed = ".".join(_b64url(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    if algorithm.startswith("HS"):
        signature = hmac.new(rng.randbytes(32), signed.encode(),
                             hashlib.sha256 if algorithm == "HS256" else hashlib.sha512).digest()
    else:
        signature = rng.randbytes(256 if algorithm == "RS256" else 64)
    return f"{signed}.{_b64url(signature)}"


# ---------------------------------------------------------------------------------------------------------------
# E-mail addresses

_HOST = ("posteo.de", "fastmail.com", "bluewin.ch", "wanadoo.fr", "abv.bg", "uol.com.br", "rediffmail.com", "t-online.de",
         "onet.pl", "yandex.ru", "tutanota.com", "live.nl", "hey.com")
_ENDING = ("com", "org", "se", "com.mx", "co.nz", "pt", "fi", "ie", "hu", "gr", "com.tr", "ai", "app", "cloud", "health",
           "online",
           "agency", "solutions", "gov", "berlin")


def _mailbox(rng: Random) -> str:
    given, family = rng.choice(_GIVEN).lower(), rng.choice(_FAMILY).lower()
    return rng.choice((f"{given}.{family}", f"{family}{rng.randint(60, 99)}", f"{given[:3]}{family[:3]}", f"{given}-{family}",
                       f"{given}_{rng.randint(1, 999)}", f"{family}.{rng.choice(_SERVICE)}", f"{given}+{rng.choice(_ITEM)}",
                       rng.choice(("accounts.payable", "hr-team", "kundenservice", "bookings", "press", "office")),
                       f"{given[0]}{family}", f"{given}.{family[0]}.{rng.randint(2, 9)}"))


def _address(rng: Random) -> str:
    if rng.random() < 0.35:
        return f"{_mailbox(rng)}@{rng.choice(_HOST)}"
    stem = rng.choice((f"{rng.choice(_FAMILY).lower()}-{rng.choice(_ITEM)}s", f"{rng.choice(_CITY).lower()}{rng.choice(_ITEM)}",
                       f"intern.{rng.choice(_FAMILY).lower()}", f"{rng.choice(_SERVICE)}{rng.randint(2, 50)}"))
    return f"{_mailbox(rng)}@{stem}.{rng.choice(_ENDING)}"


def _email_in_vcard_or_calendar(rng: Random) -> tuple[str, str, str]:
    name, day = _person(rng), _date(rng).replace("-", "")
    return _asked(rng, "email", _address(rng),
                  f"BEGIN:VCARD\nVERSION:3.0\nFN:{name}\nEMAIL;TYPE=INTERNET,WORK:§\nEND:VCARD",
                  f"BEGIN:VEVENT\nDTSTART:{day}T090000Z\nORGANIZER;CN={name}:mailto:§\nSUMMARY:Review\nEND:VEVENT",
                  f'ATTENDEE;CN="{name}";PARTSTAT=ACCEPTED:MAILTO:§\nDTEND:{day}T100000Z',
                  f"dn: cn={name},ou=people\ncn: {name}\nmail: §\nobjectClass: person")


def _email_in_sql(rng: Random) -> tuple[str, str, str]:
    number = rng.randint(1, 9999)
    return _asked(rng, "email", _address(rng), f"UPDATE customers SET email = '§' WHERE id = {number};",
                  f"SELECT id, city FROM users WHERE lower(email)=lower('§') LIMIT {number % 50};",
                  f"INSERT INTO people (id, name, mail) VALUES ({number},'{_person(rng)}','§');",
                  f"COPY people (id, mail, city) FROM stdin;\n{number}\t§\t{rng.choice(_CITY)}\n\\.",
                  "db.users.findOne({mail: \"§\"})", f"DELETE FROM {rng.choice(_SERVICE)} WHERE owner IN ('§')")


def _email_in_stack_trace(rng: Random) -> tuple[str, str, str]:
    line, service = rng.randint(10, 900), rng.choice(_SERVICE)
    return _asked(rng, "email", _address(rng),
                  f"Traceback (most recent call last):\n  File \"{service}.py\", line {line}, in send\nValueError: no user §",
                  f"java.lang.IllegalStateException: [§] is not verified\n\tat app.{service.title()}.run(Main.java:{line})",
                  f"E   AssertionError: assert '§' == None\ntest_{service}.py:{line}: AssertionError",
                  "smtp: 550 5.1.1 <§>: Recipient address rejected: User unknown in virtual mailbox table",
                  f"panic: duplicate owner \"§\"\n\ngoroutine 1 [running]:\nmain.go:{line} +0x1d",
                  f"PHP Warning: mail(): §, refused in /srv/{service}/index.php on line {line}")


def _email_in_foreign_sentence(rng: Random) -> tuple[str, str, str]:
    return _fill(rng, "email", _address(rng), "Lütfen başvurunuzu § adresine gönderin.", "Bana §'dan yazabilirsiniz.",
                 "Viết cho tôi qua § nhé.", "ส่งใบเสร็จมาที่ § ได้เลยครับ", "कृपया § पर लिखें।", "请抄送§，并附上发票。", "お問い合わせ先：§（平日のみ）",
                 "Напишіть на §; відповімо за день.", "Το τιμολόγιο πήγε στο §, όχι σε μένα.", "أرسل الفاتورة إلى §؟",
                 "ჩემი ელფოსტა: §", "Skicka svaret till §, tack!", "詳細は「§」まで", "답장은 §로 보내 주세요")


def _email_in_project_metadata(rng: Random) -> tuple[str, str, str]:
    name, item = _person(rng), rng.choice(_ITEM)
    return _asked(rng, "email", _address(rng), f'"author": "{name} <§> (https://{item}.example/)",',
                  f'[project]\nname = "{item}"\nauthors = [{{name = "{name}", email = "§"}}]', f"/docs/{item}/  §  # CODEOWNERS",
                  f"git config --global user.email '§'\ngit config user.name '{name}'",
                  f" -- {name} <§>  Mon, 03 Feb 2025 09:00:00 +0100",
                  f"Maintainer: {name} <§>\nPackage: lib{item}", f"Co-authored-by: {name} <§>",
                  f"# {name} (§), {item} owner\nretries: 3", "  * @author §\n  */", f"LETSENCRYPT_EMAIL=§\nSERVICE={item}")


# ---------------------------------------------------------------------------------------------------------------
# Phone numbers

_LRE, _PDF, _LRI, _PDI = "\u202a", "\u202c", "\u2066", "\u2069"


def _phone_in_support_ticket(rng: Random) -> tuple[str, str, str]:
    cc, area, rest = _plan(rng)
    separator = rng.choice((" ", ".", "-", _NBSP, _NNBSP, _NBHYPHEN, _EN_DASH))
    value = rng.choice((f"+{cc}.{area}.{rest}", f"+{cc}/{area}/{rest}", f"+{cc} ({area}) {_rest(rng, rest, separator)}",
                        f"+{cc}{separator}{area}{separator}{_rest(rng, rest, separator)}", f"+{cc} {area}-{rest}"))
    ticket = rng.randint(100, 99999)
    return _asked(rng, "phone", value, f"Ticket {ticket}: customer is at § until 17h, asks for a callback",
                  f"[#{ticket}] {_person(rng)} wrote:\nMy router is dead. Ring § please, any time",
                  f"Requester: {_person(rng)}\nCallback number: §\nPriority: high", "@agent the client's mobile is §, not mine",
                  f"{_given(rng)}: tried § twice, no answer\n{_given(rng)}: ok closing",
                  "NUMBER TO REACH YOU? §\nBEST TIME? noon")


def _phone_double_zero_in_records(rng: Random) -> tuple[str, str, str]:
    cc, area, rest = _plan(rng)
    gap = rng.choice(("", " ", "-", "/", _NBSP))
    value = f"00{cc}{gap}{area}{gap}{_rest(rng, rest, gap if gap != '/' else ' ')}"
    name = _person(rng)
    return _asked(rng, "phone", value, f"name;telefoon;plaats\n{name};§;{rng.choice(_CITY)}",
                  f"guest: {name}\nphone: '§'\nroom: 4",
                  f"INSERT INTO calls (who, dialled) VALUES ('{name}', '§');", "<tr><th>Phone</th><td>§</td></tr>",
                  f"{_date(rng)}\t{name}\t§\tmissed", f"Emergency contact ({name}, spouse): §", '{"contact":{"phone":"§"}}')


def _phone_north_american_forms(rng: Random) -> tuple[str, str, str]:
    area, office, line = _north_american(rng)
    dash = rng.choice(("-", _EN_DASH, _NBHYPHEN))
    value = rng.choice((f"{area} - {office} - {line}", f"({area}) {office} {line}", f"({area})-{office}-{line}",
                        f"1 ({area}) {office}{dash}{line}", f"1.{area}.{office}.{line}", f"{area}{dash}{office}{dash}{line}",
                        f"({area}){_NBSP}{office}{dash}{line}", f"{area} {office}-{line}"))
    return _asked(rng, "phone", value, f"APPLICANT {_person(rng).upper()}\nDAYTIME PHONE  §\nSIGNATURE ______",
                  "<p class=\"contact\">Front desk: <b>§</b></p>", f"Dr. {rng.choice(_FAMILY)}'s office, §, closed Mondays",
                  f"To: {_given(rng)}\nWhile you were out: § wants you to call back", f"name,phone\n{_person(rng)},§",
                  f"> for sale, two {rng.choice(_ITEM)}s, text § no lowballers", f"- Plumber: § ({_given(rng)})",
                  "pharmacy is §, they open at nine", "// on call this week: §\nretry();")


def _phone_with_bidi_marks_and_scripts(rng: Random) -> tuple[str, str, str]:
    """As numbers come out of an address book or a right-to-left text: the marks stand around the number."""
    cc, area, rest = _plan(rng)
    separator = rng.choice((" ", "-", _NBSP, ""))
    value = f"+{cc}{separator}{area}{separator}{_rest(rng, rest, separator)}"
    return _fill(rng, "phone", value, f"{_person(rng)}: {_LRE}§{_PDF}", f"الجوال {_LRE}§{_PDF} بعد العصر",
                 f"هاتف المكتب: {_LRI}§{_PDI}.",
                 "טלפון נייד: §, אחרי שש", "联系电话 §，请在上午拨打", "ご連絡は§（携帯）まで", "Дозвонитесь по номеру § до пятницы.",
                 "Καλέστε στο § για ραντεβού.", "โทร § ได้ทุกวัน", "फ़ोन: § (शाम को)", "연락처 §, 오후만 가능", "Տեл․ §, հարցնել Անիին")


def _phone_in_messaging_payload(rng: Random) -> tuple[str, str, str]:
    cc, area, rest = _plan(rng)
    whole = f"{cc}{area}{rest}"
    if rng.random() < 0.3:
        return _asked(rng, "phone", f"%2B{whole}", f"To=§&From={rng.choice(_SERVICE)}&Body=hello", "Body=ok&From=§",
                      "intent://send?to=tel%3A§&text=hi", "GET /v2/lookups/§?type=carrier HTTP/2")
    return _asked(rng, "phone", f"+{whole}", f'{{"to": ["§"], "text": "Your {rng.choice(_ITEM)} is ready"}}',
                  f"client.messages.create(to='§', body='{_given(rng)} is here')",
                  f"[sms] dst=§ parts=1 cost=0.0{rng.randint(10, 99)}",
                  "receivers:\n  - sms: \"§\"\n    severity: critical", "ONCALL_PHONE=§\nTZ=UTC",
                  f"<message><msisdn>§</msisdn><ref>{rng.randint(1, 99)}</ref></message>", "whatsapp:§",
                  "$ signal-cli send -m ok §")


# ---------------------------------------------------------------------------------------------------------------
# Payment cards


def _expiry(rng: Random) -> str:
    return f"{rng.randint(1, 12):02}/{rng.randint(26, 32)}"


def _card_on_scanned_receipt(rng: Random) -> tuple[str, str, str]:
    value = rng.choice(("  ", " ", _NBSP, "-")).join(_card_groups(_card(rng)))
    city = rng.choice(_CITY).upper()
    return _asked(rng, "card", value, f"HOTEL {city}\nCARD NO   §\nEXP       {_expiry(rng)}\nTOTAL     {_price(rng)}",
                  f"*** COPY ***\n§\n{_person(rng).upper()}\nGOOD THRU {_expiry(rng)}",
                  "MAIL ORDER FORM\nCard no.: §\nSignature:",
                  f"{city} PARKING\nAmount {_price(rng)}\nAcct: § (manual entry)\nAPPROVED")


def _card_in_sql_or_test(rng: Random) -> tuple[str, str, str]:
    value = "".join(_card_groups(_card(rng)))
    name = _person(rng)
    return _asked(rng, "card", value, f"INSERT INTO payments (holder, pan, exp) VALUES ('{name}', '§', '{_expiry(rng)}');",
                  f"SELECT * FROM charges WHERE card_no = '§' AND amount > {rng.randint(1, 500)};",
                  'assert is_valid("§") is True',
                  f"describe('{rng.choice(_SERVICE)}', () => {{ expect(mask('§')).toBe('x') }})",
                  f"val card = Card(number = \"§\", owner = \"{name}\")",
                  f"IllegalArgumentException: unexpected brand for §\n\tat pay.Brand.of(Brand.kt:{rng.randint(9, 300)})",
                  f"// TODO: {name}'s card § is still hard coded here")


def _card_in_chat_with_expiry(rng: Random) -> tuple[str, str, str]:
    groups = _card_groups(_card(rng))
    value = rng.choice((" ", "-", ".", "", _EN_DASH, _NBHYPHEN, _NNBSP)).join(groups)
    return _asked(rng, "card", value, f"ok use this one: §, expires {_expiry(rng)}, name {_person(rng)}",
                  f"{_given(rng)}: number?\n{_given(rng)}: §\n{_given(rng)}: and expiry?",
                  f"can u book it w my card (§ - {_expiry(rng)})",
                  "bonjour, voici ma carte : § ; merci de confirmer", f"they billed § twice, {_price(rng)} each!!",
                  "Guest gave card §/" + _expiry(rng).replace("/", "-"), f"§ exp. {_expiry(rng)}")


def _card_in_html_or_url(rng: Random) -> tuple[str, str, str]:
    groups = _card_groups(_card(rng))
    if rng.random() < 0.4:
        return _asked(rng, "card", rng.choice(("%20", "", "+", "%2D")).join(groups),
                      f"cc_name={_given(rng)}&cc_num=§&cc_exp=0929",
                      "https://pay.example/checkout?card=§&cur=EUR",
                      f"POST /v1/tokens\n\ncard[number]=§&card[cvc]={_number(rng, 3)}")
    return _asked(rng, "card", rng.choice((" ", "")).join(groups), '<input name="cardnumber" autocomplete="cc-number" value="§">',
                  f"<dt>Card</dt><dd>§</dd><dt>Valid</dt><dd>{_expiry(rng)}</dd>", "<span data-pan=\"§\">paid</span>",
                  f"| guest | card | exp |\n|---|---|---|\n| {_person(rng)} | § | {_expiry(rng)} |",
                  f"* holder: {_person(rng)}\n* number: `§`", f"booking:\n  card: '§'\n  valid: {_expiry(rng)}")


def _card_in_foreign_sentence(rng: Random) -> tuple[str, str, str]:
    value = rng.choice(("", " ", "-", _NBSP)).join(_card_groups(_card(rng)))
    return _fill(rng, "card", value, "信用卡§被拒绝了，怎么办？", "クレジットカード（§）の利用を停止したい", "Спишите с карты §, пожалуйста.",
                 "Η κάρτα μου § έληξε χθες.", "كم تبقى على بطاقتي § هذا الشهر؟", "כרטיס אשראי: § בתוקף", "บัตร § ใช้ไม่ได้",
                 "मेरा कार्ड § बंद कर दें", "Kartımın numarası §, lütfen iptal edin.", "결제 카드는 § 입니다",
                 "Mein Kärtchen: §, gültig noch ein Jahr")


# ---------------------------------------------------------------------------------------------------------------
# Bank accounts

_BANK_CODE_GROUPS: Mapping[str, tuple[int, ...]] = {
    "DE": (4, 8), "GB": (4, 4, 6), "FR": (4, 5, 5, 11), "ES": (4, 4, 4, 2), "IT": (4, 1, 5, 5), "NL": (4, 4), "AT": (4, 5),
    "CH": (4, 5), "PT": (4, 4, 4, 11), "PL": (2, 2, 4, 4, 4, 4, 4, 4)}


def _iban_of(rng: Random, countries: Sequence[str]) -> str:
    while True:
        iban = _iban(rng)
        if iban[:2] in countries:
            return iban


def _iban_in_bank_messages(rng: Random) -> tuple[str, str, str]:
    name, day = _person(rng), _date(rng).replace("-", "")[2:]
    return _asked(rng, "iban", _iban(rng),
                  f":20:STARTUMSE\n:25:§\n:28C:{rng.randint(1, 300)}/1\n:60F:C{day}EUR{rng.randint(1, 999)},00",
                  f":59:/§\n{name}\n{rng.choice(_CITY)}", f"BCD\n002\n1\nSCT\n\n{name}\n§\nEUR{_price(rng)}",
                  f"<DbtrAcct>\n  <Id><IBAN>§</IBAN></Id>\n</DbtrAcct>\n<Dbtr><Nm>{name}</Nm></Dbtr>",
                  f"SVWZ+RENT KREF+NONE IBAN+§ ABWA+{name}", "payto://iban/§?amount=EUR:" + _price(rng))


def _iban_in_letter(rng: Random) -> tuple[str, str, str]:
    value = rng.choice((" ", _NBSP, _NNBSP, "  ", "-")).join(_fours(_iban(rng)))
    name = _person(rng)
    return _asked(rng, "iban", value,
                  f"The rent of {_price(rng)} is payable monthly to {name}, account §, by the third working day.",
                  f"Sehr geehrte Frau {rng.choice(_FAMILY)},\n\nbitte erstatten Sie den Betrag auf mein Konto "
                  f"(§).\n\nMfG\n{name}",
                  f"Virement à l’ordre de {name} — compte § — objet : loyer", f"Betaal s.v.p. op § t.n.v. {name}",
                  f"Refund form\nName: {name}\nAccount (IBAN): §\nBank: {rng.choice(_CITY)} Savings",
                  f"hey {_given(rng)}, dinner was {_price(rng)} each, my account's § :)",
                  f"Il mio conto è §, intestato a {name}.")


def _iban_in_code_or_sql(rng: Random) -> tuple[str, str, str]:
    name = _person(rng)
    return _asked(rng, "iban", _iban(rng), f"UPDATE vendors SET iban='§', checked=1 WHERE name='{name}';",
                  f'new Account("§", "{name}")',
                  f"InvalidIbanException: § (country not enabled)\n  at pay/{rng.choice(_SERVICE)}.ts:12:4",
                  f"SEPA_CREDITOR_IBAN=§\nSEPA_CREDITOR_NAME={name}",
                  f"{_clock(rng)} DEBUG payout id={rng.randint(1, 9999)} dest=§ ok",
                  '{"bank_account":{"object":"iban","value":"§"}}', f"payee,iban\n{name},§",
                  "# was §, closed last year\nIBAN = None",
                  "<input id=iban value='§'>")


def _iban_grouped_by_bank_code(rng: Random) -> tuple[str, str, str]:
    """Bank code and account number apart, as people copy them from a form."""
    iban = _iban_of(rng, tuple(_BANK_CODE_GROUPS))
    value = " ".join(_split(iban, _BANK_CODE_GROUPS[iban[:2]]))
    return _asked(rng, "iban", value, "IBAN § bitte notieren", f"{_person(rng)}, §, {rng.choice(_CITY)}",
                  "Account: §\nReference: membership",
                  "| account | § |", f"coordinate bancarie: §\nintestatario: {_person(rng)}", "nr konta §, tytułem: składka",
                  "(§)")


def _iban_in_foreign_sentence(rng: Random) -> tuple[str, str, str]:
    value = rng.choice(("", " ", _NBSP)).join(_fours(_iban(rng)))
    return _fill(rng, "iban", value, "退款请打到账户§，户名如下。", "振込先：§（普通口座）", "Мой расчётный счёт § не меняется.",
                 "Ο λογαριασμός μου είναι §, ευχαριστώ.", "حوّل المبلغ إلى الحساب § اليوم", "מספר חשבון: §, תודה",
                 "Hesabım § numaralıdır.", "बैंक खाता § में भेजें", "โอนเข้าบัญชี § ครับ", "환불 계좌 § 확인",
                 "Перекажіть на § до кінця тижня")


# ---------------------------------------------------------------------------------------------------------------
# Social security numbers of the United States


def _ssn_on_tax_form(rng: Random) -> tuple[str, str, str]:
    name = _person(rng).upper()
    return _asked(rng, "ssn", "-".join(_ssn(rng)), f"a Employee's social security number\n§\nc Employer {rng.choice(_ITEM)} Inc",
                  f"FORM 1040\n{name}        §\nSPOUSE  NONE", f"1099-NEC  RECIPIENT'S TIN  §  BOX 1  {_price(rng)}",
                  f"{name}\nDOB {rng.randint(1, 12)}/{rng.randint(1, 28)}/{rng.randint(1940, 2004)}\nSoc. Sec. #  §\nWages  "
                  f"{_price(rng)}")


def _ssn_in_personnel_data(rng: Random) -> tuple[str, str, str]:
    name, number = _person(rng), rng.randint(100, 9999)
    return _asked(rng, "ssn", "-".join(_ssn(rng)),
                  f"employee:\n  id: {number}\n  name: {name}\n  social_security: '§'\n  state: OH",
                  f"SELECT name FROM payroll WHERE ssn = '§' AND dept = {number};",
                  f"emp_no|name|ssn|hired\n{number}|{name}|§|{_date(rng)}",
                  f'<employee no="{number}"><taxId>§</taxId></employee>',
                  f"ERROR payroll: duplicate taxpayer § in batch {number}",
                  f"{number};{name};§;{rng.choice(_CITY)};active", f"&last={name.split()[1]}&ssn=§&dob={_date(rng)}")


def _ssn_in_chat(rng: Random) -> tuple[str, str, str]:
    value = rng.choice(("-", "-", _NBHYPHEN, _EN_DASH)).join(_ssn(rng))
    return _asked(rng, "ssn", value, f"{_given(rng)}: the landlord wants my social, it's § right?",
                  "my ssn (§) is wrong on the credit report",
                  "Dispute letter for the bureau, SS number §, name below", f"El número de seguro social de {_given(rng)} es §.",
                  "我的美国社安号是§，要填在哪一栏？", "Мой номер соцстрахования США: §. Куда его вписать?", "patient SSN § / allergies none",
                  "FAFSA asks for §, my dad's number")


# ---------------------------------------------------------------------------------------------------------------
# Secrets and tokens


def _live_key(rng: Random) -> tuple[str, str]:
    """The name that a variable for it might have, and a key."""
    mark = "T3Blbk" + "FJ"  # stands in the middle of each of OpenAI's keys
    makers: tuple[Callable[[], tuple[str, str]], ...] = (
        lambda: ("openai_key", f"sk-{_take(rng, _ALNUM, 20)}{mark}{_take(rng, _ALNUM, 20)}"),
        lambda: ("llm_key", f"sk-{rng.choice(('proj', 'svcacct', 'admin'))}-{_dashed(rng, 74)}{mark}{_dashed(rng, 74)}"),
        lambda: ("aws_key_id", rng.choice(("AKIA", "ASIA")) + _take(rng, string.ascii_uppercase + "234567", 16)),
        lambda: ("gh_token", _checked(rng, rng.choice(("ghp_", "gho_", "ghs_", "ghu_")))),
        lambda: ("gh_pat", f"github_pat_11{_take(rng, _LATIN_CAPITALS, 20)}_{_take(rng, _ALNUM, 59)}"),
        lambda: ("gitlab_token", "glpat-" + _dashed(rng, 20)),
        lambda: ("slack_token", f"xoxb-{_number(rng, 12)}-{_number(rng, 13)}-{_take(rng, _ALNUM, 24)}"),
        lambda: ("slack_user_token", f"xoxp-{_number(rng, 12)}-{_number(rng, 12)}-{_number(rng, 13)}-{_hex(rng, 32)}"),
        lambda: ("stripe_key", rng.choice(("sk_live_", "rk_live_")) + "51" + _take(rng, _ALNUM, 97)),
        lambda: ("maps_key", "AIzaSy" + _dashed(rng, 33)),
        lambda: ("hub_token", "hf_" + _take(rng, string.ascii_letters, 34)),
        lambda: ("npm_publish", _checked(rng, "npm_")))
    return rng.choice(makers)()


def _secret_in_pipeline_file(rng: Random) -> tuple[str, str, str]:
    name, value = _live_key(rng)
    return _asked(rng, "secret", value, f"jobs:\n  deploy:\n    env:\n      {name.upper()}: §\n    steps: []",
                  f"docker run -e {name.upper()}=§ {rng.choice(_SERVICE)}:latest",
                  f"variable \"{name}\" {{\n  default = \"§\"\n}}",
                  f"resource:\n  config:\n    - {{name: {name}, value: §}}", f"helm upgrade app . --set {name}=§ --wait",
                  f"<add key=\"{name}\" value=\"§\" />", f"{name}.value=§\nspring.application.name={rng.choice(_SERVICE)}")


def _secret_in_diff_or_comment(rng: Random) -> tuple[str, str, str]:
    name, value = _live_key(rng)
    return _asked(rng, "secret", value, f"@@ -3,2 +3,2 @@\n-{name} = os.getenv('X')\n+{name} = '§'",
                  f"-{name}: \"§\"\n+{name}: \"${{X}}\"",
                  f"# old {name}, revoke: §\npass", f"/* § */ const {name} = load();", f"let {name} = \"§\".to_string();",
                  f"commit message: oops, § was in {rng.choice(_SERVICE)}.py", f"config.put(\"{name}\", \"§\");",
                  f"<!-- {name}=§ -->")


def _secret_in_trace_or_ticket(rng: Random) -> tuple[str, str, str]:
    name, value = _live_key(rng)
    return _asked(rng, "secret", value, "openai.AuthenticationError: Error code: 401 - Incorrect API key provided: §.",
                  f"{_clock(rng)} DEBUG > x-api-key: §\n{_clock(rng)} DEBUG < 403",
                  "git clone https://oauth2:§@git.example/team/app",
                  f"Hi support, {name} § stopped working on {_date(rng)}.",
                  f"{_given(rng)} [10:31]: here you go § (delete after)",
                  f"fetch(url, {{headers: {{Authorization: 'token §'}}}})", f"INSERT INTO settings VALUES ('{name}', '§');",
                  "密钥：§，接口一直报错", "Ключ § не принимается, почему?", "המפתח § לא עובד", f"{name}\t§\t{_date(rng)}",
                  "?access_token=§&page=2")


def _secret_private_key_indented(rng: Random) -> tuple[str, str, str]:
    """A PEM block inside YAML, a quotation or a here-document; each of its lines is indented alike."""
    start = rng.choice(("    ", "  ", "> ", "\t"))
    value = _pem(rng, f"\n{start}")
    if start == "> ":
        return _fill(rng, "secret", value, f"On {_date(rng)} {_given(rng)} wrote:\n> § \n> can you install it?")
    return _fill(rng, "secret", value, f"tls:\n{start[:-1]}key: |\n{start}§\n",
                 f"resource \"key\" {{\n  pem = <<-EOT\n{start}§\n  EOT\n}}",
                 f"Why is this rejected?\n\n{start}§\n\nssh says: invalid format")


def _jwt_in_cluster_config(rng: Random) -> tuple[str, str, str]:
    return _asked(rng, "jwt", _jwt(rng), f"users:\n- name: {rng.choice(_SERVICE)}\n  user:\n    token: §",
                  "kubectl --token=§ get pods",
                  f"ARGOCD_AUTH_TOKEN=§\nSERVER={rng.choice(_SERVICE)}",
                  f"services:\n  {rng.choice(_SERVICE)}:\n    environment:\n      - ANON_KEY=§",
                  'provider "api" {\n  bearer = "§"\n}', "vault login -method=jwt jwt=§", "@token = §\nGET http://localhost/me")


def _jwt_in_browser_tools(rng: Random) -> tuple[str, str, str]:
    return _asked(rng, "jwt", _jwt(rng), "fetch('/api/me', {headers: {'authorization': 'Bearer §'}, method: 'GET'});",
                  "sessionStorage > auth > \"§\"", "document.cookie = 'sid=§; path=/; secure'",
                  "Invoke-RestMethod -Headers @{Authorization=\"Bearer §\"}",
                  "magic link: https://app.example/login#id_token=§&expires_in=3600", "<meta name=\"auth\" content=\"§\">",
                  "http GET :8000/me 'Authorization:Bearer §'", f"{{\"data\":{{\"login\":{{\"jwt\":\"§\",\"ok\":true}}}}}}")


def _jwt_in_ticket_or_test(rng: Random) -> tuple[str, str, str]:
    return _asked(rng, "jwt", _jwt(rng), f"{_given(rng)} gets 403 with this token:\n§\nis the claim wrong?",
                  "assertThat(parser.parse(\"§\")).isPresent()",
                  f"JsonWebTokenError: jwt malformed: §\n    at verify.js:{rng.randint(9, 200)}:17",
                  "| user | token |\n|---|---|\n| qa | § |",
                  f"INSERT INTO sessions (id, jwt) VALUES ({rng.randint(1, 999)}, '§');", "トークンは§です。期限切れですか？", "توكن: § منتهي؟",
                  "Токен «§» не проходит проверку", f"{_date(rng)},{_given(rng)},§,expired")


TRUE: Mapping[str, True_] = {
    "email_in_vcard_or_calendar": _email_in_vcard_or_calendar,
    "email_in_sql": _email_in_sql,
    "email_in_stack_trace": _email_in_stack_trace,
    "email_in_foreign_sentence": _email_in_foreign_sentence,
    "email_in_project_metadata": _email_in_project_metadata,
    "phone_in_support_ticket": _phone_in_support_ticket,
    "phone_double_zero_in_records": _phone_double_zero_in_records,
    "phone_north_american_forms": _phone_north_american_forms,
    "phone_with_bidi_marks_and_scripts": _phone_with_bidi_marks_and_scripts,
    "phone_in_messaging_payload": _phone_in_messaging_payload,
    "card_on_scanned_receipt": _card_on_scanned_receipt,
    "card_in_sql_or_test": _card_in_sql_or_test,
    "card_in_chat_with_expiry": _card_in_chat_with_expiry,
    "card_in_html_or_url": _card_in_html_or_url,
    "card_in_foreign_sentence": _card_in_foreign_sentence,
    "iban_in_bank_messages": _iban_in_bank_messages,
    "iban_in_letter": _iban_in_letter,
    "iban_in_code_or_sql": _iban_in_code_or_sql,
    "iban_grouped_by_bank_code": _iban_grouped_by_bank_code,
    "iban_in_foreign_sentence": _iban_in_foreign_sentence,
    "ssn_on_tax_form": _ssn_on_tax_form,
    "ssn_in_personnel_data": _ssn_in_personnel_data,
    "ssn_in_chat": _ssn_in_chat,
    "secret_in_pipeline_file": _secret_in_pipeline_file,
    "secret_in_diff_or_comment": _secret_in_diff_or_comment,
    "secret_in_trace_or_ticket": _secret_in_trace_or_ticket,
    "secret_private_key_indented": _secret_private_key_indented,
    "jwt_in_cluster_config": _jwt_in_cluster_config,
    "jwt_in_browser_tools": _jwt_in_browser_tools,
    "jwt_in_ticket_or_test": _jwt_in_ticket_or_test,
}


# ---------------------------------------------------------------------------------------------------------------
# What a FALSE text must not hold, even by chance

_SEP = "[ .\\-\u00a0\u2007\u2009\u202f\u2010\u2011\u2013]"
_CHAIN = re.compile(rf"\d(?:{_SEP}?\d)+")
_CARD_SHAPES = re.compile(  # card numbers as they are grouped, anywhere in a longer row of groups
    rf"(?<!\d)(?=(\d{{13,19}}(?!\d)|\d{{4}}{_SEP}\d{{4}}{_SEP}\d{{4}}{_SEP}\d{{4}}(?:{_SEP}\d{{1,3}})?(?!\d)"
    rf"|\d{{4}}{_SEP}\d{{6}}{_SEP}\d{{4,5}}(?!\d)))")
_SSN_SHAPE = re.compile(r"(?<!\d)(?!000|666|9)\d{3}-(?!00)\d\d-(?!0000)\d{4}(?!\d)")
_NORTH_AMERICAN_SHAPE = re.compile(rf"(?<!\d)\(?\d{{3}}\)?(?:{_SEP}|/){{0,2}}(?<!\d)\d{{3}}{_SEP}\d{{4}}(?!\d)")
_INTERNATIONAL_SHAPE = re.compile(rf"(?:\+ ?|(?<![\w.,:])00{_SEP}?)[1-9](?:(?:[/()]|{_SEP}){{0,3}}\d){{7,}}")
_IBAN_START = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d\d(?=[ A-Za-z0-9-])")
_ISSUER = re.compile(r"[3-6]|2[0-7]|8[12]|9792|1(?=\d{14}$)|1800")


def _is_card(digits: str) -> bool:
    return 13 <= len(digits) <= 19 and _ISSUER.match(digits) is not None and _luhn_ok(digits)


def _only_digits(text: str) -> str:
    return "".join(char for char in text if char.isdigit())


def _has_iban(text: str) -> bool:
    for match in _IBAN_START.finditer(text):
        length = _IBAN_LENGTH.get(match.group()[:2].upper(), 0)
        compact = re.sub(r"[ -]", "", text[match.start():match.start() + 60])[:length]
        whole = length > 0 and len(compact) == length and compact.isascii() and compact.isalnum()
        if whole and _mod97(compact[4:] + compact[:4]) == 1:
            return True
    return False


def _holds_value(text: str) -> bool:
    return (any(_is_card(_only_digits(chain)) for chain in _CHAIN.findall(text))
            or any(_is_card(_only_digits(shape)) for shape in _CARD_SHAPES.findall(text))
            or any(shape.search(text) for shape in (_SSN_SHAPE, _NORTH_AMERICAN_SHAPE, _INTERNATIONAL_SHAPE))
            or _has_iban(text))


def _free_of_values(make: False_) -> False_:
    """The same family, drawn again whenever chance put a valid value into a text."""
    def draw(rng: Random) -> str:
        for _ in range(1000):
            text = make(rng)
            if not _holds_value(text):
                return text
        raise RuntimeError("this family nearly always holds a value")
    return draw


# ---------------------------------------------------------------------------------------------------------------
# FALSE families


def _lines(rng: Random, make: Callable[[], str], low: int = 2, high: int = 5, joint: str = "\n") -> str:
    return joint.join(make() for _ in range(rng.randint(low, high)))


def _parcel_messages(rng: Random) -> str:
    return rng.choice((f"Your parcel 3S{_take(rng, string.ascii_uppercase, 4)}{_digits(rng, 9)} is at the depot in "
                       f"{rng.choice(_CITY)}.",
                       f"Colis {_take(rng, string.ascii_uppercase, 2)}{_digits(rng, 9)}FR : livraison le {_date(rng)}",
                       f"Paket {_number(rng, 14)} wurde um {_clock(rng)} zugestellt",
                       f"AWB {_digits(rng, 3)}-{_digits(rng, 8)}, 2 pcs, {_price(rng)} kg",
                       f"快递单号 SF{_number(rng, 13)} 已签收", f"container MSCU{_digits(rng, 7)} / seal {_digits(rng, 6)}"))


def _ticket_and_case_numbers(rng: Random) -> str:
    return rng.choice((f"INC{_digits(rng, 7)} was merged into INC{_digits(rng, 7)}, see CHG{_digits(rng, 7)}",
                       f"Case {_digits(rng, 8)} [ ref:_00D{_take(rng, _ALNUM, 6)}._500{_take(rng, _ALNUM, 6)}:ref ]",
                       f"WEB-{rng.randint(100, 9999)} blocks OPS-{rng.randint(100, 9999)} (sprint {rng.randint(1, 60)})",
                       f"Az. {rng.randint(1, 40)} O {rng.randint(1, 400)}/{rng.randint(10, 26)}",
                       f"заявка № {_number(rng, 9)} от {_date(rng)}"))


def _parts_list_csv(rng: Random) -> str:
    def row() -> str:
        return (f"{_take(rng, string.ascii_uppercase, 3)}-{_digits(rng, 4)}-{_digits(rng, 3)},{rng.choice(_ITEM)},"
                f"{rng.randint(1, 400)},"
                f"{_price(rng)},{_digits(rng, 2)}.{_digits(rng, 4)}.{_digits(rng, 2)}")
    return "part,name,qty,price,drawing\n" + _lines(rng, row)


def _invoice_positions_tsv(rng: Random) -> str:
    def row() -> str:
        return (f"{rng.randint(1, 90)}0\t{_digits(rng, 8)}\t{rng.choice(_ITEM)} "
                f"M{rng.randint(3, 20)}x{rng.randint(10, 90)}\t{_price(rng)}\t19%")
    return f"Invoice {rng.randint(2015, 2026)}-{_digits(rng, 5)}\n" + _lines(rng, row)


def _checksum_manifest(rng: Random) -> str:
    size = rng.choice((8, 32, 40, 64))
    return _lines(rng, lambda: f"{_hex(rng, size)} *{rng.choice(_ITEM)}-{rng.randint(1, 9)}.{rng.randint(0, 9)}.tar.xz")


def _lock_file(rng: Random) -> str:
    item = rng.choice(_ITEM)
    version = f"{rng.randint(0, 20)}.{rng.randint(0, 40)}.{rng.randint(0, 40)}"
    digest = base64.b64encode(rng.randbytes(64)).decode()
    return rng.choice((f'"@{rng.choice(_SERVICE)}/{item}@^{version}":\n  version "{version}"\n  integrity sha512-{digest}',
                       f'[[package]]\nname = "{item}"\nversion = "{version}"\nchecksum = "{_hex(rng, 64)}"',
                       f"{item} v{version} h1:{base64.b64encode(rng.randbytes(32)).decode()}",
                       f"  {item}@{version}(react@18.{rng.randint(0, 3)}.0):",
                       f"{item}=={version} \\\n    --hash=sha256:{_hex(rng, 64)}"))


def _package_scopes(rng: Random) -> str:
    def line() -> str:
        return (f'  "@{rng.choice(_SERVICE)}/{rng.choice(_ITEM)}": '
                f'"^{rng.randint(0, 30)}.{rng.randint(0, 40)}.{rng.randint(0, 20)}"')
    return rng.choice(('"dependencies": {\n' + _lines(rng, line, joint=",\n") + "\n}",
                       f"import {{ {rng.choice(_ITEM)} }} from '@{rng.choice(_SERVICE)}/core';",
                       f"deno add jsr:@std/{rng.choice(_ITEM)}@{rng.randint(0, 3)}",
                       f"npx @{rng.choice(_SERVICE)}/cli@next generate --dry-run"))


def _trace_headers(rng: Random) -> str:
    return rng.choice((f"traceparent: 00-{_hex(rng, 32)}-{_hex(rng, 16)}-01",
                       f"x-amzn-trace-id: Root=1-{_hex(rng, 8)}-{_hex(rng, 24)}",
                       f"cf-ray: {_hex(rng, 16)}-FRA", f"x-request-id: {_take(rng, _LATIN_CAPITALS, 26)}",
                       f"b3: {_hex(rng, 16)}-{_hex(rng, 16)}-1"))


def _guids_in_xml(rng: Random) -> str:
    def guid() -> str:
        return "-".join(_hex(rng, size) for size in (8, 4, 4, 4, 12)).upper()
    return rng.choice((f"<Project Guid=\"{{{guid()}}}\" />", f"HKLM\\Software\\Classes\\CLSID\\{{{guid()}}}",
                       f"<id>{guid()}</id><parent>{guid()}</parent>",
                       f"[assembly: Guid(\"{guid().lower()}\")]", f"PARTUUID={guid().lower()} / ext4 defaults 0 1"))


def _hex_dumps(rng: Random) -> str:
    def row() -> str:
        return f"{rng.randint(0, 99) * 16:08x}: {' '.join(_hex(rng, 4) for _ in range(8))}"
    return _lines(rng, row) if rng.random() < 0.6 else f"rip: 0x{_hex(rng, 16)} rsp: 0x{_hex(rng, 16)} err {rng.randint(0, 99)}"


def _league_table(rng: Random) -> str:
    def row() -> str:
        return (f"{rng.randint(1, 20)}. {rng.choice(_CITY)} {rng.randint(0, 38)} {rng.randint(0, 20)} {rng.randint(0, 9)} "
                f"{rng.randint(0, 9)} {rng.randint(9, 90)}:{rng.randint(9, 90)}")
    return _lines(rng, row, 3, 6)


def _bus_timetable(rng: Random) -> str:
    def row() -> str:
        start, gap = rng.randint(5, 20), rng.choice((7, 10, 12, 15))
        return f"{rng.choice(_CITY):10}" + " ".join(f"{start + place * gap // 60}.{place * gap % 60:02}" for place in range(5))
    if rng.random() < 0.7:
        return _lines(rng, row)
    return f"RE {rng.randint(1, 99)} ab {_clock(rng)[:5]} Gleis {rng.randint(1, 20)}, an {_clock(rng)[:5]}"


def _map_data(rng: Random) -> str:
    lat, lon = rng.uniform(1, 80), rng.uniform(1, 179)
    return rng.choice((f'{{"type":"Point","coordinates":[{lon:.7f},{lat:.7f}]}}',
                       f"$GPGGA,{_digits(rng, 6)},{lat * 100:.3f},N,0{lon * 10:.3f},E,1,08,0.9",
                       f"<trkpt lat=\"{lat:.6f}\" lon=\"-{lon:.6f}\"><ele>{rng.randint(1, 3000)}</ele></trkpt>",
                       f"UTM 32U {rng.randint(300000, 700000)} {rng.randint(5000000, 6000000)}",
                       f"{int(lat)}° {rng.randint(0, 59)}' {rng.uniform(0, 59):.2f}\" N",
                       f"bbox={lon:.4f},{lat:.4f},{lon + 1:.4f},{lat + 1:.4f}"))


def _statistics_output(rng: Random) -> str:
    def row() -> str:
        return (f"{rng.choice(_ITEM):10} {rng.uniform(-9, 9):9.5f} {rng.random():8.5f} {rng.uniform(-5, 5):7.3f} "
                f"{rng.random():.2e}")
    return rng.choice(("            Estimate Std.Error t value Pr(>|t|)\n" + _lines(rng, row),
                       f"n={rng.randint(20, 9999)}, r2={rng.random():.6f}, 95% CI [{rng.random():.3f}, 1.{_digits(rng, 3)}]",
                       f"epoch {rng.randint(1, 99)}/100 loss={rng.random():.10f} lr={rng.uniform(1, 9):.3e}",
                       f"p50 {rng.randint(1, 40)}ms p99 {rng.randint(41, 900)}ms qps {_price(rng)}"))


def _spreadsheet_formulas(rng: Random) -> str:
    row = rng.randint(2, 400)
    return rng.choice((f"=VLOOKUP(A{row},$B$2:$D${row * 3},3,FALSE)", f"=@INDEX(C:C;{row})*1,19",
                       f"=SUMIFS(E2:E{row},F2:F{row},\">={rng.randint(40000, 46000)}\")",
                       f"=IF([@Qty]>{row},[@Price]*0.9,0)", f"=TEXT(A{row},\"000-00-0000\")",
                       f"=DATE(2024,{row % 12 + 1},1)+{row}"))


def _sql_with_numbers(rng: Random) -> str:
    return rng.choice((f"DECLARE @start INT = {rng.randint(1, 9999)}, @{rng.choice(_ITEM)} NVARCHAR({rng.randint(10, 400)});",
                       f"DELETE FROM {rng.choice(_SERVICE)} WHERE id BETWEEN {_number(rng, 6)} AND {_number(rng, 7)};",
                       f"INSERT INTO stock VALUES ({_number(rng, 8)},'{rng.choice(_ITEM)}',{rng.randint(1, 99)},{_price(rng)},"
                       f"'{_date(rng)}');", f"EXEC dbo.report @year = {rng.randint(2000, 2026)}, @top = 10",
                       f"ALTER SEQUENCE {rng.choice(_SERVICE)}_seq RESTART WITH {_number(rng, 10)};"))


def _sass_and_templates(rng: Random) -> str:
    item = rng.choice(_ITEM)
    return rng.choice((f"@include {item}($w: {rng.randint(1, 99)}px); @extend .{item};",
                       f".{item} {{ @apply mt-{rng.randint(1, 12)} text-sm; }}",
                       f"@container {item} (width > {rng.randint(200, 900)}px) {{}}",
                       f"@if (item.id == {rng.randint(1, 99)}) {{ <li>{{{{ item.name }}}}</li> }}",
                       f"@foreach(${item}s as ${item}) @endforeach",
                       f"<path d=\"M{rng.randint(1, 24)} {rng.randint(1, 24)}h{rng.randint(1, 9)}v-{rng.randint(1, 9)}z\"/>"))


def _search_patterns(rng: Random) -> str:
    width = rng.randint(2, 9)
    return rng.choice((r"^\d{3}-\d{2}-\d{4}$", r"[\w.+-]+@[\w-]+\.[\w.]+", r"\+?1?[-. ]?\(?\d{3}\)?[-. ]?\d{3}[-. ]?\d{4}",
                       r"(?:4\d{3}|5[1-5]\d{2})(?:[ -]?\d{4}){3}",
                       r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", r"eyJ[\w-]+\.[\w-]+\.[\w-]+", r"AKIA[0-9A-Z]{16}", r"sk-[A-Za-z0-9]{48}",
                       r"gh[pousr]_[A-Za-z0-9]{36}", r"-----BEGIN [A-Z ]+-----")) \
        + rng.choice(("", f"  # {width} groups", " why does this not match?", f" in {rng.choice(_SERVICE)}.py line {width}"))


def _annotations(rng: Random) -> str:
    item = rng.choice(_ITEM).title()
    return rng.choice((f"@RequestMapping(\"/{item.lower()}/v{rng.randint(1, 9)}\")\npublic class {item}Api {{}}",
                       f"@Column(name = \"{item.lower()}_no\", length = {rng.randint(5, 99)})",
                       f"@property\ndef {item.lower()}(self) -> int: return {rng.randint(1, 999)}",
                       f"@Published var {item.lower()} = {rng.randint(1, 99)}",
                       f"@param {item.lower()} the {item.lower()} to use\n@return {rng.randint(1, 9)} on success",
                       f"C = A @ B.T  # {rng.randint(8, 512)}x{rng.randint(8, 512)}"))


def _shell_snippets(rng: Random) -> str:
    user = rng.choice(_GIVEN).lower()
    return rng.choice((f"for f in \"${{files[@]}}\"; do wc -c \"$f\"; done | sort -k{rng.randint(1, 9)}n",
                       f"exec java -Xmx{rng.randint(1, 64)}g \"$@\"", f"git diff HEAD@{{{rng.randint(1, 30)}}} --stat",
                       f"rsync -az build/ {user}@{rng.choice(_SERVICE)}{rng.randint(1, 9)}:/srv/www/",
                       f"chmod {rng.choice(('0644', '2755'))} *.sh && kill -9 {rng.randint(1000, 65000)}",
                       f"zfs rollback tank/{user}@{_date(rng)}",
                       f"curl -sS localhost:{rng.randint(3000, 9999)}/health -d @{rng.choice(_ITEM)}.json"))


def _file_names_with_at(rng: Random) -> str:
    item = rng.choice(_ITEM)
    return rng.choice((f"AppIcon-{rng.choice((20, 29, 60))}@{rng.randint(2, 3)}x.png is missing",
                       f"{item}@1.5x.jpg, {item}@3x.jpg", f"backup@{_date(rng)}.sql",
                       f"Screenshot {_date(rng)} @ {rng.randint(10, 23)}.{rng.randint(10, 59)}.png",
                       f"node_modules/.pnpm/{item}@{rng.randint(1, 9)}.{rng.randint(0, 9)}.{rng.randint(0, 9)}/package.json",
                       f"cp {item}@old.txt {item}@new.txt"))


def _product_numbers_with_check_digit(rng: Random) -> str:
    """ISBN, EAN, IMEI and SIM numbers: their Luhn sum fails or they begin as no card does."""
    isbn = "-".join(_split("979" + _digits(rng, 10), (3, 2, 3, 4)))
    imei = rng.choice(("86", "01", "99")) + _digits(rng, 13)
    return rng.choice((f"ISBN {isbn}, {rng.randint(90, 900)} pages", f"IMEI1 {imei} / colour black",
                       f"gtin: 0{_digits(rng, 13)}", f"<ean>{rng.choice(('76', '80', '93'))}{_digits(rng, 11)}</ean>",
                       f"UPC {rng.randint(0, 9)} {_digits(rng, 5)} {_digits(rng, 5)} {rng.randint(0, 9)}",
                       f"SIM 89{_digits(rng, 17)}"))


def _mistyped_cards(rng: Random) -> str:
    good = _card(rng, (14, 15, 16))
    place = rng.randrange(6, len(good))
    bad = good[:place] + str((int(good[place]) + rng.randint(1, 9)) % 10) + good[place + 1:]
    text = rng.choice(("", " ", "-", _NNBSP)).join(_card_groups(bad))
    return rng.choice((f"The form says {text} is not a valid number", f"expect(luhn('{text}')).toBe(false)",
                       f"reject,{text},checksum", f"numéro erroné : {text}", f"校验失败：{text}"))


def _mistyped_ibans(rng: Random) -> str:
    good = _iban(rng)
    bad = f"{good[:2]}{rng.choice([n for n in range(10, 98) if n != int(good[2:4])])}{good[4:]}"
    text = rng.choice(("", " ", _NBSP)).join(_fours(bad))
    return rng.choice((f"Prüfziffer falsch: {text}", f"payment returned, {text} does not exist",
                       f'{{"error":"checksum","input":"{text}"}}', f"assertFalse(valid(\"{text}\"))",
                       f"lot {text} in hall {rng.randint(1, 9)}"))


def _numbers_of_unassigned_ssns(rng: Random) -> str:
    group, serial = f"{rng.randint(1, 99):02}", f"{rng.randint(1, 9999):04}"
    bad = rng.choice((f"000-{group}-{serial}", f"666-{group}-{serial}", f"{rng.randint(900, 999)}-00-{serial}",
                      f"{rng.randint(100, 600)}-00-{serial}", f"{rng.randint(100, 600)}-{group}-0000"))
    return rng.choice((f"drawing {bad}, sheet {rng.randint(1, 9)}", f"sample only: {bad}", f"test_id,{bad},rejected",
                       f"Form field hint: {bad}", f"EIN {_digits(rng, 2)}-{_digits(rng, 7)}",
                       f"box {bad} on shelf {rng.choice(_ITEM)}"))


def _price_lists(rng: Random) -> str:
    def row() -> str:
        return (f"{rng.choice(_ITEM)} {rng.randint(1, 50)} x {_price(rng)} = {rng.randint(1, 99)},"
                f"{rng.randint(100, 999)}.{_digits(rng, 2)} EUR")
    return rng.choice((_lines(rng, row),
                       f"market cap ${rng.randint(1, 3)}.{_digits(rng, 3)}tn, +{rng.randint(1, 9)}.{rng.randint(1, 9)}% since "
                       f"{rng.randint(2000, 2025)}", f"CHF {rng.randint(1, 99)}'{_digits(rng, 3)}'{_digits(rng, 3)}.00 Budget",
                       f"{rng.randint(1, 9)}{_NBSP}{_digits(rng, 3)}{_NBSP}{_digits(rng, 3)},{_digits(rng, 2)} kr",
                       f"¥{rng.randint(1, 99)},{_digits(rng, 3)} → ¥{rng.randint(1, 99)},{_digits(rng, 3)}（税込）"))


def _env_templates(rng: Random) -> str:
    return rng.choice((f"OPENAI_API_KEY=\nDB_HOST=localhost\nDB_PORT={rng.randint(1024, 65000)}",
                       "STRIPE_KEY=sk_live_changeme\nSENTRY_DSN=",
                       f"GITHUB_TOKEN=${{{{ secrets.GITHUB_TOKEN }}}}\nRETRIES={rng.randint(1, 9)}",
                       "SMTP_USER=\nSMTP_PASS=\nMAIL_FROM=<your address>",
                       "AWS_ACCESS_KEY_ID=AKIA<16 characters>\nAWS_REGION=eu-west-1",
                       f"JWT_SECRET_FILE=/run/secrets/{rng.choice(_SERVICE)}\nJWT_TTL={rng.randint(60, 9999)}",
                       "-----BEGIN PRIVATE KEY-----\n(paste yours here)\n-----END PRIVATE KEY-----"))


_REMARKS = ("Die Auflage von {y} umfasst {n} Seiten und {m} Tafeln.",
            "En {y}, la ville comptait {n} habitants, soit {m} % de moins.", "Między {y} a dziś minęło {m} zim i {n} dni.",
            "Το {y} πουλήθηκαν {n} εισιτήρια σε {m} μέρες.", "В журнале за {y} год {n} записей, из них {m} пустых.",
            "{y}年出版，共{n}册，{m}章。", "في عام {y} زار المتحف {n} شخص خلال {m} يوما.",
            "{y}年度の売上は{n}万円、前年比{m}％でした。", "We never store card data; the vault holds {n} tokens since {y}.",
            "My e-mail @ work is broken again, room {m}, desk {n}.", "{n}명 중 {m}명이 {y}년에 등록했다.")


def _remarks_in_languages(rng: Random) -> str:
    def remark() -> str:
        return rng.choice(_REMARKS).format(y=rng.randint(1850, 2026), n=rng.randint(100, 9999), m=rng.randint(2, 99))
    return _lines(rng, remark, 1, 3, " ")


def _mathematics(rng: Random) -> str:
    a, b = rng.randint(2, 99), rng.randint(100, 9999)
    return rng.choice((f"\\int_0^{{{a}}} x^{{{b % 9 + 2}}} dx", f"{a}! mod {b} = {b % a}",
                       f"a_n = {a}n + {b}, find a_{{{b % 50}}}", f"gcd({b}, {a * b}) = {b}", f"√{b} ≈ {b ** 0.5:.8f}",
                       f"x = (-{a} ± √({a}² − 4·{b % 9 + 1}))/2", f"{a} × {b} = {a * b}"))


def _service_logs(rng: Random) -> str:
    service = rng.choice(_SERVICE)
    return rng.choice((f"{_date(rng)}T{_clock(rng)}.{_digits(rng, 6)}Z {service}[{rng.randint(100, 65000)}]: flushed "
                       f"{_number(rng, 7)} bytes in "
                       f"{rng.randint(1, 99)}.{_digits(rng, 3)}ms", f"{service}-{_hex(rng, 10)}-{_hex(rng, 5)} restarted "
                                                                    f"{rng.randint(1, 9)} times",
                       f"W{_digits(rng, 4)} {_clock(rng)} {service}.cc:{rng.randint(1, 999)}] offset={_number(rng, 11)} "
                       f"partition={rng.randint(0, 63)}", f"\tat com.{service}.Main$1.run(Main.java:{rng.randint(1, 999)}) "
                                                          f"[{service}-2.{rng.randint(0, 40)}.jar:?]",
                       f"{service} GET /items/{_number(rng, 8)}?ts=17{_digits(rng, 8)} 304 {rng.randint(1, 99)}ms",
                       f"ERR-{_digits(rng, 5)}: job {_hex(rng, 24)} timed out after {rng.randint(10, 900)}s"))


_FALSE: Mapping[str, False_] = {
    "parcel_messages": _parcel_messages,
    "ticket_and_case_numbers": _ticket_and_case_numbers,
    "parts_list_csv": _parts_list_csv,
    "invoice_positions_tsv": _invoice_positions_tsv,
    "checksum_manifest": _checksum_manifest,
    "lock_file": _lock_file,
    "package_scopes": _package_scopes,
    "trace_headers": _trace_headers,
    "guids_in_xml": _guids_in_xml,
    "hex_dumps": _hex_dumps,
    "league_table": _league_table,
    "bus_timetable": _bus_timetable,
    "map_data": _map_data,
    "statistics_output": _statistics_output,
    "spreadsheet_formulas": _spreadsheet_formulas,
    "sql_with_numbers": _sql_with_numbers,
    "sass_and_templates": _sass_and_templates,
    "search_patterns": _search_patterns,
    "annotations": _annotations,
    "shell_snippets": _shell_snippets,
    "file_names_with_at": _file_names_with_at,
    "product_numbers_with_check_digit": _product_numbers_with_check_digit,
    "mistyped_cards": _mistyped_cards,
    "mistyped_ibans": _mistyped_ibans,
    "numbers_of_unassigned_ssns": _numbers_of_unassigned_ssns,
    "price_lists": _price_lists,
    "env_templates": _env_templates,
    "remarks_in_languages": _remarks_in_languages,
    "mathematics": _mathematics,
    "service_logs": _service_logs,
}
FALSE: Mapping[str, False_] = {name: _free_of_values(make) for name, make in _FALSE.items()}
