"""Held-out families of texts with exactly one sensitive value (TRUE) and of harmless look-alikes (FALSE)."""

import base64
import json
import re
import string
import uuid
import zlib
from collections.abc import Callable
from functools import partial
from random import Random

Maker = Callable[[Random], str]


def words(text: str) -> list[str]:
    return text.split()


UP, LOW, DIG = string.ascii_uppercase, string.ascii_lowercase, string.digits
B62 = DIG + UP + LOW
B64U = B62 + "-_"
PLAIN, ENCODED = (" ", "-"), ("%20", "+")
SPACES = ("\u00a0", "\u202f", "\u2007", "\u2009", "\u3000")
HYPHENS = ("\u2010", "\u2011", "\u2013")
EXOTIC = SPACES + HYPHENS
FIRST = words("Marta Jonas Priya Oluwaseun Claire Hiroshi Elena Tomasz Fatima Luca Ingrid Mateo Aoife Bilal")
LAST = words("Keller Okafor Lindqvist Moreau Tanaka Kowalski Haddad Ferrari Nakamura Oduya Brennan Vargas")
TOPICS = words("ledger harbor atlas pricing onboarding kestrel telemetry migration")
DOMAINS = words("""gmail.com outlook.com posteo.de nordwind-logistik.de etu.univ-lyon2.fr ucl.ac.uk hey.com proton.me
naver.com yahoo.co.jp bluepeak.io mail.ru studio.berlin cs.uni-tartu.ee brightharbor.consulting uol.com.br""")
IDN_LOCAL = words("jürgen.groß info пётр.иванов 用户 δοκιμή संपर्क søren contact josé.núñez")
IDN_DOMAIN = words("""müller-söhne.de почта.рф 例子.公司 españa-viajes.es παράδειγμα.ελ उदाहरण.भारत smørrebrød.dk
xn--mller-kva.de пошта.укр 株式会社.jp café-lumière.fr mail.bücher.ch""")
AREAS = words("202 206 212 213 305 312 404 415 503 512 602 617 646 702 718 773 800 808 888 416 514 604 905 787")
DIALS = """44 7812 ######|33 6 12 ## ## ##|49 171 #######|39 347 ### ####|34 612 ## ## ##|41 79 ### ## ##
81 90 3### ####|91 98### #####|55 11 98### ####|61 412 ### ###|86 138 #### ####|52 55 5### ####|972 54 ### ####
380 67 ### ## ##|82 10 4### ####|234 803 ### ####|65 91## ####|971 50 ### ####|31 6 2### ####|48 601 ### ###
46 70 2## ## ##|27 82 ### ####|90 532 ### ## ##|7 916 ### ## ##|44 20 7946 ####|353 86 ### ####|43 664 ### ####
1 212 55# ####|1 604 73# ####"""
SLASHED = """+49 (0)171 / #######|+44 (0)7812 ######|+39.347.###.####|+41/79/###.##.##|+33 (0)6.12.##.##.##
+49 (89) 2180-####|+1/415/555-01##|0049 (0) 30 / 2093-####|+43 (0) 664/### ## ##|+61 (0)412-###-###"""
US = "({a}) {e}-{s}|{a}-{e}-{s}|{a}.{e}.{s}|+1 {a} {e} {s}|+1 ({a}) {e}-{s}|({a}){e}-{s}|{a} {e} {s}"
CARDS = words("""4/16/4444 51/16/4444 53/16/4444 55/16/4444 2223/16/4444 2719/16/4444 34/15/465 37/15/465 6011/16/4444
65/16/4444 3530/16/4444 3566/16/4444 622588/16/4444 2200/16/4444 6759/16/4444""")
ODD_CARDS = words("4/13/4333 36/14/464 305/14/464 622202/19/44443 4/19/44443 622848/19/676")
IBANS = words("""DEn18 GBa4n14 FRn10c11n2 NLa4n10 ESn20 ITa1n10c12 CHn5c12 BEn12 ATn16 PLn24 SEn20 NOn11 DKn14 FIn14
PTn21 IEa4n14 LUn3c13 MTa4n5c18 TRn22 SAn2c18 AEn19 BRn23a1c1 CZn20 HUn24 GRn7c16 UAn6c19 ROa4c16 HRn17 EEn16
LVa4c13""")
SHAPES = {
    "openai": "sk-{w20}T3BlbkFJ{w20} sk-proj-{u74}T3BlbkFJ{u74} sk-svcacct-{u74}T3BlbkFJ{u74}",
    "anthropic": "sk-ant-api03-{u93}AA sk-ant-admin01-{u93}AA",
    "aws": "AKIA{s16} ASIA{s16}",
    "google": "AIzaSy{u33}",
    "github_pat": "github_pat_11{a20}_{w59}",
    "gitlab": "glpat-{u20}",
    "slack": "xoxb-15{d10}-58{d11}-{w24} xoxp-15{d10}-15{d10}-78{d11}-{x32}",
    "stripe": "sk_live_{w24} rk_live_{w24} sk_live_51{w97} rk_live_51{w97}",
    "hf": "hf_{l34}",
    "sendgrid": "SG.{u22}.{u43}",
}
ALPHABETS = {"w": B62, "u": B64U, "s": UP + "234567", "a": UP + DIG, "d": DIG, "x": DIG + "abcdef", "l": UP + LOW}


def chars(r: Random, alphabet: str, n: int) -> str:
    return "".join(r.choices(alphabet, k=n))


def dial(r: Random, shapes: str) -> str:
    return re.sub("#", lambda _: r.choice(DIG), r.choice(re.split(r"[|\n]", shapes)))


def luhn_digit(body: str) -> str:
    doubled = (int(c) * (2 - i % 2) for i, c in enumerate(reversed(body)))
    return str(-sum(d - 9 if d > 9 else d for d in doubled) % 10)


def card(r: Random, seps: tuple[str, ...] = ("",), brands: list[str] = CARDS, shift: int = 0) -> str:
    prefix, length, groups = r.choice(brands).split("/")
    body = prefix + chars(r, DIG, int(length) - 1 - len(prefix))
    whole = body + str((int(luhn_digit(body)) + shift) % 10)
    return r.choice(seps).join(re.findall("".join(f"(.{{{n}}})" for n in groups), whole)[0])


def iban(r: Random, seps: tuple[str, ...] = ("",), shift: int = 0) -> str:
    spec, alphabets = r.choice(IBANS), {"n": DIG, "a": UP, "c": DIG * 3 + UP}
    country = spec[:2]
    body = "".join(chars(r, alphabets[kind], int(n)) for kind, n in re.findall(r"([anc])(\d+)", spec))
    check = 98 - int("".join(str(int(c, 36)) for c in body + country) + "00") % 97
    whole = f"{country}{(check - 2 + shift) % 97 + 2:02}{body}"
    return r.choice(seps).join(re.findall(".{1,4}", whole))


def ssn(r: Random, seps: tuple[str, ...] = ("-",)) -> str:
    area = r.choice([n for n in range(1, 900) if n != 666])
    return r.choice(seps).join([f"{area:03}", f"{r.randint(1, 99):02}", f"{r.randint(1, 9999):04}"])


def email(r: Random, at: str = "@") -> str:
    first, last, n = r.choice(FIRST).lower(), r.choice(LAST).lower(), r.randint(1, 99)
    local = r.choice([f"{first}.{last}", f"{first[0]}{last}", f"{first}_{last}{n}", f"{last}-{n}", f"{first}{n}"])
    return local + ("+news" if at == "@" and r.random() < 0.15 else "") + at + r.choice(DOMAINS)


def intl(r: Random, seps: tuple[str, ...] = (" ",), start: str = "+") -> str:
    return start + dial(r, DIALS).replace(" ", r.choice(seps))


def nanp(r: Random, shapes: str = US, seps: tuple[str, ...] = (" ",)) -> str:
    exchange = r.choice([n for n in range(200, 1000) if n % 100 != 11])
    shape = r.choice(shapes.split("|")).replace("~", r.choice(seps))
    return shape.format(a=r.choice(AREAS), e=exchange, s=chars(r, DIG, 4))


def b64u(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def jwt(r: Random) -> str:
    alg, size = r.choice([("HS256", 32), ("HS256", 32), ("ES256", 64), ("HS512", 64), ("RS256", 256)])
    header = {"alg": alg, "typ": "JWT"} | ({"kid": chars(r, B62, 12)} if r.random() < 0.3 else {})
    now = r.randint(1_690_000_000, 1_770_000_000)
    claims = {"sub": r.choice(LAST) + str(r.randint(1, 9999)), "iat": now, "exp": now + 3600, "role": "viewer"}
    parts = [json.dumps(part, separators=(",", ":")).encode() for part in (header, claims)]
    return ".".join(map(b64u, [*parts, r.randbytes(size)]))


def base(n: int, alphabet: str, width: int) -> str:
    out = ""
    while n or len(out) < width:
        n, rest = divmod(n, len(alphabet))
        out = alphabet[rest] + out
    return out


def checked(r: Random, prefixes: tuple[str, ...]) -> str:
    """A token of GitHub's and npm's kind: 30 random characters and their CRC-32 in base 62."""
    body = chars(r, B62, 30)
    return r.choice(prefixes) + body + base(zlib.crc32(body.encode()), B62, 6)


def routable(r: Random) -> str:
    payload = "glpat-" + b64u(r.randbytes(24)) + ".01." + base(32, DIG + LOW, 2)
    return payload + base(zlib.crc32(payload.encode()), DIG + LOW, 7)


def pypi(r: Random) -> str:
    ident, caveat = str(uuid.UUID(bytes=r.randbytes(16), version=4)).encode(), b'{"permissions":"user","version":1}'
    head = b"\x02\x01\x08pypi.org\x02\x24" + ident + b"\x00\x02" + bytes([len(caveat)]) + caveat
    return "pypi-" + b64u(head + b"\x00\x00\x06\x20" + r.randbytes(32))


def token(r: Random, shapes: list[str]) -> str:
    return re.sub(r"\{(\w)(\d+)\}", lambda m: chars(r, ALPHABETS[m[1]], int(m[2])), r.choice(shapes))


def tlv(tag: int, body: bytes) -> bytes:
    n = len(body)
    size = bytes([n]) if n < 128 else (b"\x81" + bytes([n]) if n < 256 else b"\x82" + n.to_bytes(2, "big"))
    return bytes([tag]) + size + body


def rsa(r: Random) -> bytes:
    half = r.choice([128, 128, 256])
    n, d, *rest = (b"\0" + bytes([r.randint(128, 255)]) + r.randbytes(k * half - 1) for k in (2, 2, 1, 1, 1, 1, 1))
    return tlv(0x30, b"".join(tlv(2, part) for part in (b"\0", n, b"\1\0\1", d, *rest)))


def openssh(r: Random) -> bytes:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    kind, public, check = text(b"ssh-ed25519"), r.randbytes(32), r.randbytes(4)
    private = check * 2 + kind + text(public) + text(r.randbytes(32) + public) + text(b"deploy-key")
    private += bytes(range(1, 1 + -len(private) % 8))
    head = b"openssh-key-v1\0" + text(b"none") * 2 + text(b"") + b"\0\0\0\1"
    return head + text(kind + text(public)) + text(private)


def pem(r: Random, label: str, newline: str = "\n") -> str:
    unhex, some, kind = bytes.fromhex, r.randbytes, label.removesuffix(" PRIVATE KEY")
    if kind in ("RSA", "OPENSSH"):
        der = rsa(r) if kind == "RSA" else openssh(r)
    elif kind == "EC":
        der = unhex("30770201010420") + some(32) + unhex("a00a06082a8648ce3d030107a14403420004") + some(64)
    elif kind == "PUBLIC KEY":
        der = unhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004") + some(64)
    elif kind == "CERTIFICATE":
        der = unhex("3082031f30820207a0030201020214") + some(788)
    else:
        der = tlv(0x30, unhex("020100300d06092a864886f70d0101010500") + tlv(4, rsa(r)))
    text = base64.b64encode(der).decode()
    width = 70 if label.startswith("OPENSSH") else 64
    lines = [text[i : i + width] for i in range(0, len(text), width)]
    return newline.join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----"])


MAKERS: dict[str, Maker] = {
    "email": email,
    "email_idn": lambda r: f"{r.choice(IDN_LOCAL)}@{r.choice(IDN_DOMAIN)}",
    "email_pct40": partial(email, at="%40"),
    "phone_intl": partial(intl, seps=(" ", "-", ".")),
    "phone_e164": partial(intl, seps=("",)),
    "phone_00": partial(intl, seps=(" ", "", "-"), start="00"),
    "phone_unicode": partial(intl, seps=EXOTIC),
    "phone_slashed": partial(dial, shapes=SLASHED),
    "phone_url": partial(intl, seps=("%20",)),
    "phone_00_url": partial(intl, seps=ENCODED, start="00"),
    "phone_us_url": partial(nanp, shapes="({a})~{e}-{s}|{a}~{e}~{s}", seps=ENCODED),
    "phone": nanp,
    "phone_us_unicode": partial(nanp, shapes="({a})~{e}~{s}|{a}~{e}~{s}|+1~{a}~{e}~{s}", seps=EXOTIC),
    "card": card,
    "card_expiry": partial(card, seps=("", *PLAIN)),
    "card_lengths": partial(card, seps=("", *PLAIN), brands=ODD_CARDS),
    "iban": iban,
    "ssn": ssn,
    "ssn_unicode": partial(ssn, seps=HYPHENS),
    "secret_github": partial(checked, prefixes=("ghp_", "gho_", "ghu_", "ghs_")),
    "secret_gitlab_routable": routable,
    "secret_npm": partial(checked, prefixes=("npm_",)),
    "secret_pypi": pypi,
    "secret_pem_file": lambda r: pem(r, r.choice(["RSA ", "", "EC ", "OPENSSH "]) + "PRIVATE KEY"),
    "secret_pem_escaped": lambda r: pem(r, r.choice(["RSA ", "", "EC ", "OPENSSH "]) + "PRIVATE KEY", "\\n"),
    "secret_pem_indented": lambda r: pem(r, r.choice(["RSA ", "", "EC "]) + "PRIVATE KEY", "\n    "),
    "jwt": jwt,
}
STYLES = {"grouped": PLAIN, "unicode": EXOTIC, "url": ("", *ENCODED), "languages": ("", " ")}
MAKERS |= {f"card_{style}": partial(card, seps=seps) for style, seps in STYLES.items()}
MAKERS |= {f"iban_{style}": partial(iban, seps=seps) for style, seps in STYLES.items()}
MAKERS |= {f"secret_{name}": partial(token, shapes=words(shapes)) for name, shapes in SHAPES.items()}

# One template a line, a family's name before the first. The section sign is the value; what is in quotation marks is random.
TRUE_TEXTS = r"""
email_header | Date: ‹date› ‹time›⏎From: ‹first› ‹last› <§>⏎Subject: Re: invoice ‹i900›⏎⏎Hi all, see below.
| Summarise this thread:⏎> On ‹date›, ‹first› <§> wrote:⏎>> the build is red again
email_punctuation | Could you draft a reply to §? She asked about the ‹word› rollout. | cc:§,then close the ticket
| My co-founder (§) will join,thanks. | Bitte an §; danke! | Reach me at §. | Ask »§«.
email_escaped | {"role":"user","content":"Hello,\nmy new address is\n§\nplease update it"}
| {"author":"‹first› \u003c§\u003e","rev":"‹x8›"} | "{\"id\":‹i900›,\"to\":\"§\",\"cc\":null}"
| {"line":"name\temail\r\n‹first›\t§\r\n"}
email_idn | Ist <§> eine gültige Adresse? | {"email": "§", "lang": "xx"} | Kontakt: § (Mo–Fr) | Адрес для писем: §
email_pct40 | GET /unsubscribe?u=§&list=‹word› HTTP/1.1" 200 ‹i900› | curl 'https://api.zeta.dev/v1/users/§/roles'
| https://app.zeta.dev/login?login_hint=§#top | redirect_uri=/done&email=§&tz=UTC
email_cjk | 담당자 이메일은 § 입니다. | 请把合同发到 § ,谢谢! | メール:§(平日のみ) | 邮箱:§。
email_rtl | Пишите на § до пятницы | אפשר לכתוב אל §, תודה | راسلني على § من فضلك | कृपया § पर लिखें
email_markup | INSERT INTO users (id, mail) VALUES (‹i900›, '§'); | <p>Write <a href="mailto:§?subject=Hi">us</a></p>
| **§** is the owner of `‹word›` | \| ‹first› \| §\|‹i90›\| | [mail me](mailto:§) | <td>§</td>
email_log | ‹date›T‹time›Z WARN auth: login failed user=§ attempts=‹i9› src=10.0.‹i250›.‹i250› | ‹i900›;‹first›;§;active
| commit ‹x40›⏎Author: ‹first› ‹last› <§>⏎Date:   ‹date›⏎⏎    fix ‹word›
phone_intl | Call me on § after six, I'll be at the ‹word› desk. | Mein Handy: § (bitte nur abends) | WhatsApp:§
| Mon numéro est le §, merci ! | Contact: ‹first› ‹last›, §. | Mi teléfono es §; gracias
phone_e164 | {"to":"§","body":"Your code is on its way","id":"‹uuid›"} | client.messages.create(to='§', body=msg)
| sms sent to=§ status=ok ms=‹i900› | <a href="tel:§">Call</a> | ‹first›,§,‹date›,active
phone_00 | Von außerhalb wählen Sie § und dann die Nebenstelle. | Llámame al § mañana. | "phone": "§",
phone_unicode | Звоните: §, спросить Анну | Tél. : § – bureau ‹i90› | Tel.nr: «§» | 電話:§(代表)
phone_slashed | Mit freundlichen Grüßen⏎‹first› ‹last›⏎Tel.: §⏎Raum ‹i90› | Phone [§] for the ‹word› desk | Zentrale §
phone_url | https://crm.zeta.dev/find?phone=§&exact=1 | GET /call/§ HTTP/1.1
phone_00_url | GET /lookup?lang=en&tel=§ HTTP/1.1 | q=§&src=web&page=‹i9› | "/find?q=§"
phone_us_url | https://crm.zeta.dev/find?phone=§&exact=1 | curl 'https://zeta.dev/sms?to=§&n=‹i9›' | tel=§
phone_us | ‹date› ‹time› INFO twilio: dialing § for ticket #‹i900› | My number is §, leave a voicemail. | Cell:§!
| Fax: §⏎Suite ‹i90›, ‹word› Plaza | Front desk: § ext. ‹i90› | Llame al § hoy mismo
phone_us_tight | {"note":"call back\n§\nbefore noon"} | Tel:§,ask for ‹first› | \|‹first›\|§\| | call[§]now | <b>§</b>
phone_us_unicode | Reservations: § (24h) | phone;§;home | 予約は § まで | Dial §. | «§» | "§"
card_chat | hi, my card § was charged twice on ‹date›, can you help? | The customer typed "§" into the name field
| Is §, a valid test number? | pay with §. | card#§;
card_grouped | Kartennummer: §⏎Inhaber: ‹first› ‹last› | Refund to § please (‹first› ‹last›) | Card no.:§, thanks
card_expiry | card: §, exp 11/28, cvv ‹z3› | num=§|exp=0728 | § 04/29 ‹z3› | § (12/27)
card_unicode | Carte : §, au nom de ‹first› ‹last› | pan "§" seen in the PDF | カード番号「§」 | N° §⏎
card_url | POST /pay?card=§&amount=‹i90›.00 HTTP/1.1 | source[object]=card&number=§&exp_month=12
| https://shop.zeta.dev/c?pan=§#done
card_log | {"level":"error","msg":"declined","pan":"§","amount":‹i900›} | "{\"card\":\"§\",\"ok\":false}"
| ‹date› ‹time› DEBUG payload={'number': '§', 'cvc': '***'} | \n§\n was pasted twice
card_lengths | Debit card: §, branch ‹i90› | PAN § (old issue) | {"pan": "§"} | 银行卡号:§,户名:王伟
card_languages | Minha fatura do cartão § veio errada. | Numer karty to §; proszę o blokadę | ใช้บัตร § ชำระแล้ว
| Карта §, срок до конца года | رقم البطاقة: § | 卡号§已挂失
card_table | \| name \| pan \|⏎\|---\|---\|⏎\| ‹first› \| § \| | UPDATE cards SET pan='§' WHERE id=‹i90›;
| card = Card(number="§", brand=None) | id,name,pan⏎‹i90›,‹last›,§⏎ | <td>§</td><td>VISA</td>
iban_letter | Bitte überweisen Sie ‹i900›,00 EUR auf §. | Refund me to § (‹last›). | IBAN:§,thanks | konto §;
iban_grouped | Bankverbindung⏎Konto: ‹first› ‹last›⏎IBAN: §⏎Verwendungszweck: ‹word› | "§" is my account | IBAN (§)
iban_unicode | IBAN : § — titulaire ‹first› ‹last› | Zahlbar an §. | 口座「§」へ送金
iban_url | https://bank.zeta.dev/pay?iban=§&amount=‹i90› | name=‹first›&iban=§&ref=‹word›
iban_json | {"creditor":{"name":"‹last› GmbH","iban":"§"}} | {"text":"new account:\n§\nvalid from ‹date›"}
| "{\"iban\":\"§\",\"currency\":\"EUR\"}"
iban_xml | <CdtrAcct><Id><IBAN>§</IBAN></Id></CdtrAcct> | :59:/§⏎‹first› ‹last› | account_iban: '§'
iban_languages | Ecco il mio IBAN § per il bonifico | Wpłata na §, dziękuję | Переведите на § | الحساب: § | 请汇款至§。
iban_table | ‹date›;‹last›;§;-‹i900›,00;EUR | \| ‹last› \|§\| ‹i90›.00 \| | assert is_valid("§")
ssn_chat | My social is § and I still can't see my W-2. | Is § enough to freeze my credit? | SSN:§, DOB on file.
ssn_form | Employee: ‹first› ‹last›⏎SSN: §⏎Start date: ‹date› | Applicant [§] | Box a: § | (§)
ssn_json | {"t":"ssn is\n§\nthanks"} | {"ssn":"§","state":"OR"} | {'taxpayer_id': '§'} | "{\"ssn\":\"§\"}"
ssn_csv | id,ssn,name⏎‹i90›,§,‹last›⏎ | ‹last›;§;full-time | ‹last›\t§\t‹date› | \|‹last›\|§\|
ssn_unicode | Patient ‹last›, SSN §, admitted ‹date› | n.º de seguro social: §. | SSN «§»
ssn_url | https://hr.zeta.dev/find?ssn=§&year=2023 | /v1/people/§/forms?fmt=pdf | q=§&page=‹i9›
ssn_code | UPDATE staff SET ssn = '§' WHERE id = ‹i900›; | <input name="ssn" value="§"> | mask("§") == "***" | `§`
ssn_log | [‹time›] row ‹i900›: duplicate key (§) already exists | ‹date›T‹time›Z ERROR ssn=§ reason=mismatch
ssn_languages | Mi número de seguro social es §, ¿me ayuda? | Số an sinh xã hội: § | 社会安全号码:§。 | SSN(§)입니다
secret_openai | client = OpenAI(api_key="§") | export OPENAI_API_KEY=§ | Why does § give 401? | {\"key\":\"§\"}
secret_anthropic | curl -H "x-api-key: §" https://api.anthropic.com/v1 | ANTHROPIC_API_KEY='§' | x-api-key: § | «§»
secret_aws | [default]⏎aws_access_key_id = §⏎region = eu-west-1 | ?AWSAccessKeyId=§&Expires=17‹d8› | {"AccessKeyId":"§"}
secret_google | <script src="https://maps.googleapis.com/maps/api/js?key=§&callback=init"></script> | apiKey: "§",
secret_github | git clone https://x-access-token:§@github.com/acme/‹word›.git | Authorization: token § | GITHUB_TOKEN=§
secret_github_pat | gh auth login --with-token <<< § | my PAT is §, is it still valid? | "token":"§"
secret_gitlab | curl --header "PRIVATE-TOKEN: §" https://gitlab.com/api/v4/projects | token=§&per_page=20 | (§)
secret_gitlab_routable | Der Token lautet § und läuft bald ab | GITLAB_TOKEN="§"
secret_slack | slack = WebClient(token='§') | {"text":"token\n§\n"} | SLACK_BOT_TOKEN: §
secret_stripe | curl https://api.stripe.com/v1/charges -u §: | stripe.api_key = "§" | Мой ключ: §.
secret_hf | HF_TOKEN=§ python train.py | login(token="§") | 我的密钥是 §,报错了
secret_npm | //registry.npmjs.org/:_authToken=§ | ENV NPM_TOKEN=§⏎RUN npm ci
secret_pypi | [pypi]⏎username = __token__⏎password = § | twine upload -u __token__ -p § dist/*
secret_sendgrid | SENDGRID_API_KEY=§;export SENDGRID_API_KEY | Authorization: Bearer § | mot de passe SMTP : «§»
secret_pem_file | Here is my key, why is it refused?⏎⏎§⏎⏎ssh says "invalid format". | ```⏎§⏎```⏎convert to JWK
| cat > k.pem <<E⏎§⏎E
secret_pem_escaped | {"type":"service_account","private_key":"§\n","token_uri":"https://oauth2.googleapis.com/token"}
| PRIVATE_KEY="§\n"⏎PORT=8080
secret_pem_indented | apiVersion: v1⏎stringData:⏎  tls.key: \|⏎    §⏎kind: Secret
jwt_header | curl -H 'Authorization: Bearer §' https://api.zeta.dev/v1/me | authorization: Bearer §⏎accept: */*
jwt_cookie | Set-Cookie: session=§; Path=/; HttpOnly | Cookie: lang=en; jwt=§; theme=dark
jwt_url | https://zeta.dev/cb#access_token=§&token_type=bearer | wss://zeta.dev/socket?token=§ | /verify/§?x=1
jwt_json | {"msg":"old token:\n§\nplease revoke"} | {"id_token":"§","expires_in":3600} | "{\"token\":\"§\"}"
jwt_code | decode("§", options={"verify_signature": False}) | token='§' # expires soon | const t = `§`;
jwt_log | ‹date› ‹time› WARN jwt expired token=§ sub=‹word› | [§] rejected: bad audience | ‹i90›\|§\|stale
jwt_languages | Pourquoi ce jeton « § » est-il refusé ? | Токен (§) не проходит | Was steht in §? | このトークンは無効です:§。
"""

FALSE_TEXTS = r"""
order_numbers | Order ‹z3›-‹z7›-‹z6› shipped, PO-‹z8›/B | Bestellung #2024-‹z6› (Kd.-Nr. ‹z7›)
versions | bump ‹word› 4.‹i30›.‹i90› -> 5.0.0-rc.‹i9›+build.‹z4› | Chrome/12‹d1›.0.‹z4›.‹z3› Safari/537.36
timestamps | ‹date›T‹time›.‹d6›+02:00 took ‹i900› ms | epoch_ms=17‹d11› epoch_ns=17‹d17› | ‹date› ‹time› +0530
subtitles | ‹i90›⏎00:1‹d1›:23,‹z3› --> 00:2‹d1›:27,‹z3›⏎- I told you so.
hashes | HEAD is now at ‹x7› (parent ‹x40›) | sha256:‹x64›  dist/‹word›.tar.gz | md5 ‹x32› etag "‹x32›"
uuids | request_id=‹uuid› parent=‹uuid› | {"id": "‹uuid›", "n": ‹i900›}
coordinates | The bench is at 52.‹z6›, 13.‹z6› (±5 m). | {"lat": -33.‹z6›, "lon": 151.‹z6›} | 48°51'‹i50›"N 2°17'‹i50›"E
iso6709 | location=+40.‹z4›-074.‹z4›/ alt=‹i90› | geo tag +34.‹z4›+135.‹z4›/
ip_addresses | ‹i250›.‹i250›.‹i250›.‹i250›:8443 -> 10.‹i250›.0.‹i250›/16 | fe80::‹x4›:‹x4›:‹x4›:‹x4› 2001:db8::‹x4›
isbn_doi | ISBN 978-3-‹z3›-‹z5›-‹d1›; doi:10.1‹d3›/s‹z5›-021-‹z5›-2 | ISSN ‹z4›-‹z3›X, arXiv:2305.1‹d4›v2
orcid | See https://orcid.org/0000-0002-‹z4›-‹z4› for ‹first› ‹last›. | ORCID 0000-0003-‹z4›-‹z3›X
prices | Subtotal $1,‹z3›.‹d2› + VAT 19% = €2.‹z3›,‹d2› | ¥‹z3›,‹d3› / ₹1,‹d2›,‹d3›.00 / CHF 1'‹z3›.50
skus | SKU AX-‹z4›-‹up2›-‹z2› qty ‹i90›; SKU ‹up3›‹z5›.‹up1› | MPN ‹up2›‹z3›K-‹z2›UF/‹z2›V
latex | \int_{0}^{‹i9›} \frac{x^{‹i9›}}{‹z3›}\,dx \approx ‹i9›.‹z8› \quad \text{cf. \eqref{eq:‹word›}}
measurements | t,x,y⏎0.00,‹i9›.‹z5›,-0.‹z4›⏎0.05,‹i9›.‹z5›,0.‹z4›⏎0.10,‹i9›.‹z5›,-1.‹z4›
floats | [-0.0‹z15›, 0.‹z16›, 0.‹z16›] | loss=0.‹z16› acc=0.‹z17› | std 4.‹z15›e-05
base64_image | ![dot](data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA‹b60›)
base64_json | next_cursor=eyJvZmZzZXQiOjEwMCwibGltaXQiOjUwfQ&limit=50 | {"page":"eyJpZCI6NDJ9","n":‹i900›}
decorators | @app.route("/‹word›")⏎@functools.cache⏎def f(x: int) -> int:⏎    return x @ y.T + ‹i900›
handles | thanks @‹word›_dev and @‹first›‹i90›! | https://medium.com/@‹word›/post-‹x12› | cc @acme/‹word›-team
at_versions | npm i @types/node@20.‹i15›.‹i9› react@18.2.0 | uses: actions/checkout@v4 | image ‹word›@sha256:‹x64›
at_files | assets/logo@2x.png and icon-‹i90›@3x.webp | rsync a root@10.0.0.‹i250›:/srv | ssh deploy@web‹i90› 'uptime'
extensions | Try x‹z3›, or ext. ‹z4› for ‹first›. | Durchwahl -‹z2›, Zimmer ‹i90› | press ‹i9›, then #‹z4›
bad_cards | Test that ‹badcard› is rejected by the checksum. | {"pan":"‹badcard›","valid":false} | ref ‹badcard›,
bad_ibans | ‹badiban› has a wrong check number. | assert not is_valid("‹badiban›") | IBAN: ‹badiban›.
placeholders | export K=${ANTHROPIC_API_KEY}  # sk-ant-... | OPENAI_API_KEY=sk-... HF_TOKEN=hf_xxx | api_key="<API_KEY>"
| Authorization: Bearer <token-‹i90›> | ghp_**** or xoxb-your-token-here | AKIA<your key id> | "SG.xxx.yyy"
jwt_placeholders | eyJhbGciOiJIUzI1NiJ9.<payload>.<signature> | Bearer eyJhbGciOi... (‹i900›) | header.payload.sig
pem_public | Is this cert still valid?⏎‹cert› | ‹pubkey›⏎verify with ‹word›
pem_placeholder | -----BEGIN PRIVATE KEY-----⏎...⏎-----END PRIVATE KEY-----⏎(‹word›) | tls.key: "<PEM ‹i90›>"
ssh_public | ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI‹c43› ‹word›-laptop
key_like_names | risk-assessment-framework-for-‹word›-teams-20‹i90› | hf_hub_download(npm_config_registry) # ‹i900›
| task-‹word›-driven-development-notes-v‹i9› | SG.Core.Utilities.‹word›Service | gh-action-pypi-publish@v‹i9›
tracking | USPS 9400 1‹d3› ‹z4› ‹z4› ‹z4› ‹z2› | Royal Mail ‹up2›‹z9›GB | UPS 1Z‹up1›‹z5›‹z10› | FedEx ‹z4› ‹z4› ‹z4›
bad_ssns | 666-‹z2›-‹z4› is never issued | ITIN 9‹d2›-7‹d1›-‹z4› | 212-‹z2›-0000 fails | ‹i9›12-00-‹z4› | 000-‹z2›-‹z4›
national_phones | tél. 06 12 ‹z2› ‹z2› ‹z2› | call 020 7946 0‹d3› | ☎03-3‹d3›-‹z4› | 010-4‹d3›-‹z4› | Ruf 0171 ‹z7›
padded_ids | batch no. 000000‹z5›, ticket INC000‹z7› | invoice 0000‹z6› line 0000‹z2›
diffs | ‹i90› files changed, ‹z4› insertions(+), ‹z3› deletions(-) | @@ -‹z3›,7 +‹z3›,9 @@ def ‹word›():
math | ‹z3›,‹z3› + ‹z4› - ‹z3› = ? and 2^‹i60› mod ‹z5› | views went up +‹i9›,‹d3›,‹d3› (+‹z2›.‹d1›%)
ean | barcode: 59‹d11›, UPC 0‹z11› | EAN 4‹d12› ‹word› 500 g | GTIN-14 1‹d13›
imei | "imei": "35‹d13›", "bands": ‹i90› | IMEI 35‹d13› replaced
snowflakes | https://x.com/‹word›/status/1‹d18› | <#1‹d17›> in guild 1‹d17› | user_id: 1‹d16›
tax_ids | USt-IdNr. ATU‹z8›; SIREN ‹z3› ‹z3› ‹z3› | VAT DE‹z9›, EIN ‹z2›-‹z7›
cloud_ids | projects/‹z12›/secrets/‹word›/versions/‹i9› | arn:aws:iam::‹z12›:role/‹word› vpc-0‹x16› | C0‹up2›‹z3›‹up4›
standards | NIST SP 800-‹z2› rev ‹i9›, IEEE 802.11ax, ISO/IEC 27001:20‹i90› | RFC ‹z4› §‹i9›.‹i9› | Boeing 737-800
scores | 1. e4 e5 2. Nf3 Nc6 3. Bb5 a6, Elo 2‹d3›-1‹d3› | Spiel: 6-4, 3-6, 7-6 (‹i9›-7) after ‹i90› min
"""

CARD_RANGES = r"4(\d{12}|\d{15}|\d{18})|[56]\d{12,18}|2[2-7]\d{14}|3[47]\d{13}|3[0689]\d{12,17}|35\d{14,17}|8\d{15}"
RUN = re.compile(r"\d+(?:(?:[^\S\n]|[-+./\u2010-\u2014]|%20)\d+)*")
PHONE = re.compile(r"(?<!\d)[2-9]\d\d\)?[^\w\n]{0,2}[2-9]\d\d[^\w\n]\d{4}(?!\d)|(?<!\w)00[1-9](?:[ -]?\d){6}")


def cardlike(text: str) -> bool:
    """Whether consecutive groups of digits make a number that a card could have."""
    for run in RUN.findall(text):
        groups = re.findall(r"\d+", run)
        for i in range(len(groups)):
            for j in range(i + 1, len(groups) + 1):
                number = "".join(groups[i:j])
                if re.fullmatch(CARD_RANGES, number) and luhn_digit(number[:-1]) == number[-1]:
                    return True
    return False


def hexadecimal(r: Random, n: int) -> str:
    while re.search(r"\d{9}|^00\d{6}", out := chars(r, "0123456789abcdef", n)):
        pass
    return out


FILL: dict[str, Callable[[Random, int], str]] = {
    "first": lambda r, _: r.choice(FIRST),
    "last": lambda r, _: r.choice(LAST),
    "word": lambda r, _: r.choice(TOPICS),
    "date": lambda r, _: f"20{r.randint(18, 26)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}",
    "time": lambda r, _: f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}",
    "uuid": lambda r, _: "-".join(hexadecimal(r, n) + "abcdef"[r.randrange(6)] for n in (7, 3, 3, 3, 11)),
    "i": lambda r, n: str(r.randint(1, n)),
    "d": lambda r, n: chars(r, DIG, n),
    "z": lambda r, n: r.choice("123456789") + chars(r, DIG, n - 1),
    "x": hexadecimal,
    "up": lambda r, n: chars(r, UP, n),
    "c": lambda r, n: chars(r, B62, n),
    "b": lambda r, n: base64.b64encode(r.randbytes(n)).decode(),
    "badcard": lambda r, _: card(r, ("", *PLAIN), CARDS + ODD_CARDS, r.randint(1, 9)),
    "badiban": lambda r, _: iban(r, ("", *PLAIN), r.randint(1, 96)),
    "cert": lambda r, _: pem(r, "CERTIFICATE"),
    "pubkey": lambda r, _: pem(r, "PUBLIC KEY"),
}


def filled(r: Random, template: str) -> str:
    text = template.replace("⏎", "\n")
    return re.sub(r"‹([a-z]+)(\d*)›", lambda m: FILL[m[1]](r, int(m[2] or 0)), text)


def parse(table: str) -> dict[str, list[str]]:
    families: dict[str, list[str]] = {}
    name = ""
    for line in table.strip().splitlines():
        head, *templates = re.split(r"(?:^| )(?<!\\)\| ", line)
        name = head or name
        families.setdefault(name, []).extend(t.replace("\\|", "|") for t in templates)
    return families


def true_text(r: Random, name: str, templates: list[str]) -> tuple[str, str, str]:
    kind = name.split("_", maxsplit=1)[0]
    value = MAKERS[name if name in MAKERS else kind](r)
    return filled(r, r.choice(templates)).replace("§", value), kind, value


def false_text(r: Random, templates: list[str]) -> str:
    while cardlike(text := filled(r, r.choice(templates))) or PHONE.search(text):
        pass
    return text


TRUE: dict[str, Callable[[Random], tuple[str, str, str]]] = {
    name: partial(true_text, name=name, templates=templates) for name, templates in parse(TRUE_TEXTS).items()
}
FALSE: dict[str, Maker] = {
    name: partial(false_text, templates=templates) for name, templates in parse(FALSE_TEXTS).items()
}
