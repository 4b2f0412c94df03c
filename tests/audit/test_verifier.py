"""Claims about the verifier, which is also the `verify.py` of an export: what it finds, and that its Ed25519 is right."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from app.audit import verifier
from app.audit.checkpoints import fits
from app.audit.record import canonical
from app.audit.verifier import START, Verifier, ed25519_verify, row_hash

# RFC 8032, section 7.1: secret key, public key, message, signature.
VECTORS = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
NOW = datetime(2026, 11, 23, 13, tzinfo=UTC)


def bodies(count: int) -> list[str]:
    return [canonical({"account": "acme", "act": "key.create", "target": f"k{n}", "who": "ada"}) for n in range(count)]


def chain(texts: list[str]) -> list[tuple[int, bytes, str]]:
    rows, digest = [], START
    for seq, text in enumerate(texts, 1):
        digest = row_hash(digest, seq, text)
        rows.append((seq, digest, text))
    return rows


def checkpoint(seq: int, digest: bytes, *, cut_days: int | None = None, account: str = "acme") -> tuple[str, bytes]:
    values = {"account": account, "at": "2026-11-23T12:00:00.000000Z", "hash": digest.hex(), "seq": seq}
    values |= {"cut": False} if cut_days is None else {"cut": True, "retention_days": cut_days}
    text = canonical(values | {"key": PUBLIC.hex(), "version": 1})
    return text, KEY.sign(text.encode())


def problems(
    rows: list[tuple[int, bytes, str]], *signed: tuple[str, bytes], days_ago: tuple[float | None, ...] = ()
) -> list[str]:
    """`days_ago`: since when each checkpoint lies in the object store; none: it does not."""
    found = Verifier([PUBLIC])
    for (text, signature), age in zip_longest(signed, days_ago):
        found.checkpoint(text, signature, stored=None if age is None else NOW - timedelta(days=age))
    for seq, digest, text in rows:
        found.row("acme", seq, digest, text)
    return found.finish()


@pytest.mark.parametrize(("secret", "public", "message", "signature"), VECTORS)
def test_the_signatures_of_rfc_8032_are_verified(secret: str, public: str, message: str, signature: str) -> None:
    key, text, signed = bytes.fromhex(public), bytes.fromhex(message), bytes.fromhex(signature)
    assert Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)).sign(text) == signed
    assert ed25519_verify(key, text, signed)
    assert not ed25519_verify(key, text + b"x", signed)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100), st.integers(0, 63), st.integers(1, 255))
def test_a_signature_is_judged_as_the_library_judges_it(seed: bytes, message: bytes, place: int, change: int) -> None:
    key = Ed25519PrivateKey.from_private_bytes(seed)
    public, signature = key.public_key().public_bytes_raw(), key.sign(message)
    assert ed25519_verify(public, message, signature)
    wrong = bytearray(signature)
    wrong[place] ^= change
    assert ed25519_verify(public, message, bytes(wrong)) is fits(public, message, bytes(wrong)) is False


def test_a_signature_whose_scalar_is_not_reduced_is_refused() -> None:
    signature = KEY.sign(b"text")
    large = int.from_bytes(signature[32:], "little") + 2**252 + 27742317777372353535851937790883648493
    assert not ed25519_verify(PUBLIC, b"text", signature[:32] + large.to_bytes(32, "little"))
    assert not ed25519_verify(PUBLIC[:31], b"text", signature)
    assert not ed25519_verify(b"\xff" * 32, b"text", signature)


def test_a_chain_with_its_checkpoints_fits() -> None:
    rows = chain(bodies(5))
    assert problems(rows, checkpoint(2, rows[1][1]), checkpoint(5, rows[4][1])) == []


@given(st.integers(0, 4), st.integers(0, 200), st.integers(1, 255))
def test_one_changed_byte_of_a_row_or_a_seal_is_found(at: int, place: int, change: int) -> None:
    rows = chain(bodies(5))
    seq, digest, text = rows[at]
    raw = bytearray(text.encode("latin-1"))
    raw[place % len(raw)] ^= change
    assert problems([*rows[:at], (seq, digest, raw.decode("latin-1")), *rows[at + 1 :]])
    seal = bytearray(digest)
    seal[place % 32] ^= change
    assert problems([*rows[:at], (seq, bytes(seal), text), *rows[at + 1 :]])


@given(st.integers(0, 2000), st.integers(1, 127))
def test_one_changed_byte_of_a_checkpoint_or_its_signature_is_found(place: int, change: int) -> None:
    rows = chain(bodies(3))
    text, signature = checkpoint(3, rows[2][1])
    raw = bytearray(text.encode())
    raw[place % len(raw)] ^= change
    assert problems(rows, (raw.decode("latin-1"), signature))
    wrong = bytearray(signature)
    wrong[place % 64] ^= change
    assert problems(rows, (text, bytes(wrong)))


def test_rows_that_are_missing_at_the_start_in_the_middle_or_at_the_end_are_found() -> None:
    rows = chain(bodies(6))
    signed = checkpoint(6, rows[5][1])
    assert problems(rows[2:], signed) == ["account acme: rows 1 to 2 are missing, and no checkpoint allows it"]
    assert problems(rows[:2] + rows[3:], signed) == ["account acme: rows 3 to 3 are missing"]
    assert problems(rows[:4], signed) == [
        "account acme: rows 5 to 6 are missing: row 6 was signed at 2026-11-23T12:00:00.000000Z"
    ]
    assert problems([], signed)


def test_a_new_chain_over_changed_rows_does_not_fit_the_checkpoint() -> None:
    rows = chain(bodies(4))
    forged = chain(["{}" if n == 1 else text for n, text in enumerate(bodies(4))])
    assert any("not the one that was signed" in each for each in problems(forged, checkpoint(4, rows[3][1])))


def test_only_a_signed_cut_allows_rows_to_be_missing_at_the_start() -> None:
    rows = chain(bodies(6))
    old, cut = checkpoint(4, rows[3][1]), checkpoint(3, rows[2][1], cut_days=365)
    assert problems(rows[3:], old, cut, days_ago=(366, 1)) == []
    assert problems(rows[3:], old, checkpoint(3, rows[2][1]), days_ago=(366, 1))
    forged = checkpoint(3, rows[1][1], cut_days=365)
    assert problems(rows[3:], old, forged, days_ago=(366, 1)), "the cut's hash continues the chain"


def test_a_cut_counts_only_if_the_store_shows_that_its_rows_were_there_for_the_retention() -> None:
    rows = chain(bodies(6))
    earlier, same, later = (checkpoint(seq, rows[seq - 1][1]) for seq in (2, 3, 6))
    cut = checkpoint(3, rows[2][1], cut_days=365)

    def refusal(*signed: tuple[str, bytes], days_ago: tuple[float | None, ...]) -> str:
        found = problems(rows[3:], *signed, days_ago=days_ago)
        return found[0].rpartition("missing, and ")[2] if found else ""

    unproven = "no checkpoint in the object store shows that they were there 365 days before they were cut off"
    assert refusal(earlier, same, later, cut, days_ago=(400, 366, 10, 1)) == ""
    assert refusal(later, cut, days_ago=(366, 1)) == ""
    assert refusal(earlier, same, later, cut, days_ago=(400, 300, 10, 0)) == unproven, "the thief's cut"
    assert refusal(same, cut, days_ago=(None, 0)) == unproven, "what is in the database alone can be of any age"
    assert "is not in the object store" in refusal(same, cut, days_ago=(400, None))
    short = checkpoint(3, rows[2][1], cut_days=0)
    assert "a retention of 0 days" in refusal(same, short, days_ago=(400, 0))
    assert refusal(same, short, cut, days_ago=(400, 0, 0)) == "", "one of several that proves it is enough"
    for days, fits_it in ((90, True), (400, False), (0, False)):
        found = Verifier([PUBLIC], retention_days=days)
        for (text, signature), age in ((same, 366), (cut, 0)):
            found.checkpoint(text, signature, stored=NOW - timedelta(days=age))
        for row in rows[3:]:
            found.row("acme", *row)
        assert (found.finish() == []) is fits_it, days


def test_a_checkpoint_of_a_key_that_is_not_known_is_found() -> None:
    rows = chain(bodies(2))
    found = Verifier([bytes(32)])
    found.checkpoint(*checkpoint(2, rows[1][1]))
    assert "not known" in found.finish()[0]


def test_the_verifier_runs_with_the_standard_library_alone(tmp_path: Path) -> None:
    rows = chain(bodies(3))
    text, signature = checkpoint(3, rows[2][1])
    lines = [{"account": "acme", "seq": seq, "hash": digest.hex(), "body": body} for seq, digest, body in rows]
    (tmp_path / "rows.ndjson").write_text("".join(json.dumps(each) + "\n" for each in lines))
    (tmp_path / "checkpoints.ndjson").write_text(
        json.dumps({"body": text, "signature": signature.hex(), "stored": None}) + "\n"
    )
    (tmp_path / "keys.json").write_text(json.dumps([PUBLIC.hex()]))
    (tmp_path / "verify.py").write_text(Path(verifier.__file__).read_text())
    command = [sys.executable, "-I", "-S", str(tmp_path / "verify.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3 rows and 1 checkpoints, 0 problems\n")
    assert subprocess.run([*command, "--key", "00" * 32], capture_output=True, check=False).returncode == 1
    (tmp_path / "rows.ndjson").write_text((tmp_path / "rows.ndjson").read_text().replace("ada", "eve", 1))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "row 1 or its seal was changed" in done.stdout
