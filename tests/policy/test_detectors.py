"""What counts as a sensitive value, and that searching is linear."""

import pytest

from app.detection import detectors
from app.detection.detectors import BUILT_IN_KINDS, Detectors, DetectorsDown, PatternError, check_pattern, detectors_of


def found(text: str, patterns: dict[str, str] | None = None) -> list[tuple[str, str]]:
    data = text.encode()
    hits = Detectors([*BUILT_IN_KINDS, *(patterns or {})], patterns or {}).find(data)
    return [(hit.kind, data[hit.start : hit.end].decode()) for hit in hits]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("email", "jürgen.o'neil+x@mail.example.co.uk".removeprefix("jürgen.o'")),
        ("phone", "+49 (0)30 901820"),
        ("phone", "(555) 123-4567"),
        ("phone", "555-123-4567"),
        ("card", "4111 1111 1111 1111"),
        ("card", "378282246310005"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("iban", "GB29NWBK60161331926819"),
        ("ssn", "123-45-6789"),
        ("ssn", "123\u201145\u20116789"),
        ("email", "alice%40clinic.example"),
        ("email", "jörg@bücher.de"),
        ("email", "a@xn--bcher-kva.example"),
        ("email", "почта@пример.рф"),
        ("phone", "+49 30/1234567"),
        ("phone", "+49\u00a030\u00a01234567"),
        ("phone", "%2B49%2030%201234567"),
        ("phone", "0049 30 123456"),
        ("phone", "415.555.2671"),
        ("phone", "1-415-555-2671"),
        ("card", "4111\u00a01111\u00a01111\u00a01111"),
        ("card", "4111\u20131111\u20131111\u20131111"),
        ("card", "4111+1111+1111+1111"),
        ("iban", "DE89\u202f3704\u202f0044\u202f0532\u202f0130\u202f00"),
        ("secret", "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"),
        ("secret", "AKIAIOSFODNN7EXAMPLE"),
        ("secret", "ghp_" + "a1B2" * 9),
        ("secret", "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"),
        ("jwt", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"),
    ],
)
def test_a_value_is_found_whole_within_a_sentence(kind: str, value: str) -> None:
    assert found(f"Für sie: {value}, bitte") == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",  # Luhn
        "DE88 3704 0044 0532 0130 00",  # mod 97
        "000-12-3456, 666-12-3456, 123-00-4567, 123-45-0000",
        "risk-abcdefghijklmnopqrstuvwxyz",
        "a@b, user@host, 12:30, 2026-11-23, 1.2.3.4, $1,234,567.89",
        "version 1.20.300, ISBN 978-3-16-148410-0",
        "scope/pkg@1.2.33, +48.20820, 3.4111111111111111, n+1234567890",
    ],
)
def test_what_only_looks_like_a_value_is_none(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "resp_985d80885f35412087d4953129575706",  # of ours; the last digits are a card by their check digit
        "file-3715204928db40adb382039197790849",
        '{"trace": "msg_149122e8e26e49a58395943327906964"}',
        "f223742a-e4a9-4aed-be69-e1f4de542d99",  # with an IBAN, by its remainder
        "sha256:985d80885f35412087d4953129575706985d80885f35412087d4953129575706",
    ],
)
def test_a_part_of_an_id_is_no_value(text: str) -> None:
    assert found(text) == []
    assert found(f"{text} 4953129575706") == [("card", "4953129575706")]


def test_a_number_is_found_beside_digits_and_words_that_the_candidate_has_too() -> None:
    assert found("4111 1111 1111 1111 22") == [("card", "4111 1111 1111 1111")]
    assert found("23 4111 1111 1111 1111") == [("card", "4111 1111 1111 1111")]
    assert found("123-45-6789 1234 5678") == [("ssn", "123-45-6789")]
    assert found("DE89 3704 0044 0532 0130 00 IS MINE") == [("iban", "DE89 3704 0044 0532 0130 00")]


def test_a_value_is_found_beside_letters_without_a_space() -> None:
    assert found("card4111111111111111") == [("card", "4111111111111111")]
    assert found("请联系alice@x.com谢谢") == [("email", "alice@x.com")]
    assert found("用户bob@例子.公司") == [("email", "bob@例子.公司")]


def test_patterns_of_the_account_are_found_also_with_groups() -> None:
    patterns = {"patient": r"P-(\d{3})(-[a-z]+)?", "room": r"(?i)(room|raum) (\d+)"}
    assert found("P-123-x in Raum 7, a@b.de", patterns) == [
        ("patient", "P-123-x"),
        ("room", "Raum 7"),
        ("email", "a@b.de"),
    ]


@pytest.mark.parametrize("pattern", ["(", r"(\w)\1", "x*", r"a\Cb", "(?P<x>a)", "a" * 501])
def test_a_pattern_that_cannot_be_used_is_an_error(pattern: str) -> None:
    with pytest.raises(PatternError):
        check_pattern(pattern)


def test_the_search_is_linear_whatever_the_pattern() -> None:
    finder = Detectors(["evil", *BUILT_IN_KINDS], {"evil": "(a+)+$b"})
    finder.find(b"a" * 1_000_000)
    finder.find(b"1 2 3 4 " * 5_000)


def test_without_re2_nothing_is_searched_and_nothing_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detectors, "re2", None)
    with pytest.raises(DetectorsDown):
        Detectors(["email"], {})
    detectors_of.cache_clear()
    with pytest.raises(DetectorsDown):
        detectors_of(frozenset(["email"]), ())
