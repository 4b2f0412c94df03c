"""Claims about sealed bodies and sealed files: pure."""

from collections.abc import AsyncIterator, Sequence

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from app.errors import KeysUnavailable
from app.queue.bodies import BatchSeal, is_incomplete
from app.sealing import frames, sealed_form
from app.sealing.frames import FRAME, HEAD, FrameWriter
from app.sealing.sealed_form import COMPRESS_FROM, Nonces, Unreadable, is_sealed
from tests.sets import drawn

CIPHER = AESGCM(bytes(range(32)))
PLACES = st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(1, 32_000))


@drawn(20, 200)
@given(st.binary(max_size=3 * COMPRESS_FROM), PLACES)
def test_what_was_sealed_opens_at_its_place(body: bytes, place: tuple[int, int, int]) -> None:
    batch, seq, run = place
    seal = BatchSeal(batch, CIPHER)
    assert seal.open_payload(seq, seal.payload(seq, body)) == body
    assert seal.open_result(seq, run, seal.result(seq, run, body.replace(b"incomplete", b""))) == body.replace(
        b"incomplete", b""
    )
    assert seal.open_events(seal.events(body)) == body
    assert is_sealed(seal.payload(seq, body))


@drawn(20, 200)
@given(PLACES, PLACES)
def test_a_row_that_was_moved_to_another_place_does_not_open(
    place: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    sealed = BatchSeal(place[0], CIPHER).result(place[1], place[2], b'{"answer": 1}')
    if other != place:
        with pytest.raises(KeysUnavailable):
            BatchSeal(other[0], CIPHER).open_result(other[1], other[2], sealed)
    with pytest.raises(KeysUnavailable):
        BatchSeal(place[0], CIPHER).open_payload(place[1], sealed)
    with pytest.raises(KeysUnavailable):
        BatchSeal(place[0], CIPHER).open_events(sealed)


@drawn(20, 200)
@given(st.binary(min_size=1, max_size=200), st.data())
def test_one_changed_byte_is_noticed(body: bytes, data: st.DataObject) -> None:
    sealed = bytearray(sealed_form.seal(CIPHER, Nonces().next(), body, b"here"))
    at = data.draw(st.integers(1, len(sealed) - 1))
    sealed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Unreadable):
        sealed_form.unseal(CIPHER, bytes(sealed), b"here")


def test_a_body_in_the_clear_is_not_opened() -> None:
    with pytest.raises(KeysUnavailable, match="in the clear"):
        BatchSeal(1, CIPHER).open_payload(0, b'{"prompt": "x"}')


def test_a_seal_adds_thirty_bytes() -> None:
    seal = BatchSeal(1, CIPHER)
    assert len(seal.payload(0, b"x" * 100)) == 100 + 30
    assert len(seal.payload(0, b"x" * COMPRESS_FROM)) < 100


def test_no_two_seals_of_a_batch_share_a_nonce() -> None:
    seals = [BatchSeal(1, CIPHER), BatchSeal(1, CIPHER)]
    sealed = [seal.payload(0, b"x") for seal in seals for _ in range(1000)]
    assert len({body[2:14] for body in sealed}) == 2000


def test_an_incomplete_answer_is_known_without_its_key() -> None:
    seal = BatchSeal(1, CIPHER)
    assert is_incomplete(seal.result(0, 1, b'{"status":"incomplete"}'))
    assert not is_incomplete(seal.result(0, 1, b'{"status":"completed","text":"incomplete"}'))
    assert is_incomplete(b'{"status":"incomplete"}')
    assert not is_incomplete(b'{"status":"completed","text":"incomplete"}')


# ── files ──────────────────────────────────────────────────────────────────────────────────────────────────────

SIZES = st.sampled_from([0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 3 * FRAME - 5])


def content(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def sealed_file(body: bytes, cuts: Sequence[int]) -> bytes:
    writer, at, out = FrameWriter(CIPHER, b"file"), 0, []
    for cut in (*sorted(cut % (len(body) + 1) for cut in cuts), len(body)):
        out.append(writer.feed(body[at:cut]))
        at = cut
    return b"".join((*out, writer.close()))


async def blocks(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def opened(sealed: bytes, block: int = 50_000, context: bytes = b"file") -> bytes:
    found = frames.opened(CIPHER, context, sealed[:HEAD], blocks(sealed[HEAD:], block))
    return b"".join([piece async for piece in found])


@drawn(20, 200)
@given(SIZES, st.lists(st.integers(0, 10**6), max_size=3), st.integers(10_000, 200_000))
async def test_a_file_opens_however_its_bytes_were_cut(size: int, cuts: list[int], block: int) -> None:
    body = content(size)
    sealed = sealed_file(body, cuts)
    assert await opened(sealed, block) == body


@drawn(20, 200)
@given(SIZES.filter(bool), st.data())
async def test_any_part_of_a_file_opens_without_the_rest(size: int, data: st.DataObject) -> None:
    body = content(size)
    sealed = sealed_file(body, [])
    start = data.draw(st.integers(0, size - 1))
    length = data.draw(st.integers(1, size - start))
    place, count = frames.sealed_range(start, length)
    first = start // FRAME
    part = frames.opened(
        CIPHER, b"file", sealed[:HEAD], blocks(sealed[place : place + count], 30_000), first=first, whole=False
    )
    found = b"".join([piece async for piece in part])
    assert found[start - first * FRAME :][:length] == body[start : start + length]


@pytest.mark.parametrize("size", [1, FRAME, 2 * FRAME + 10])
async def test_a_file_that_was_cut_extended_or_renamed_does_not_open(size: int) -> None:
    sealed = sealed_file(content(size), [])
    frame = FRAME + 16
    for broken in (sealed[:-1], sealed + b"\0", sealed[: HEAD + frame], sealed[:HEAD] + sealed[HEAD + frame :]):
        if broken != sealed:
            with pytest.raises(Unreadable):
                await opened(broken)
    with pytest.raises(Unreadable):
        await opened(sealed, context=b"other")
