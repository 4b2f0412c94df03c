"""The sealed form of a file: frames that can be written while it arrives, and read from any place. Pure.

    magic (8) | prefix (7) | frames of FRAME bytes, each sealed with AES-256-GCM and its tag (16); the last one is shorter

The nonce of a frame is the prefix, its number (4 bytes) and whether it is the last (1 byte), so frames cannot be exchanged,
dropped or appended: the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár (CRYPTO 2015). The context is authenticated
in each.
"""

import os
from collections.abc import AsyncIterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.sealing.sealed_form import Unreadable

FRAME = 64 * 1024
HEAD = 15
_MAGIC = b"\x01swfile\x01"
_SEALED_FRAME = FRAME + 16


class FrameWriter:
    """Seals a file while it arrives. What `feed` and `close` return is the file's sealed form, in order."""

    def __init__(self, cipher: AESGCM, context: bytes) -> None:
        self._cipher, self._context = cipher, context
        self._prefix = os.urandom(7)
        self._number = 0
        self._rest = bytearray()
        self._begun = False

    def feed(self, piece: bytes) -> bytes:
        """The frames that are whole with these bytes."""
        self._rest += piece
        out = [] if self._begun else [_MAGIC + self._prefix]
        self._begun = True
        while len(self._rest) > FRAME:  # a full frame may be the last, so it waits for the next byte
            out.append(self._sealed(bytes(self._rest[:FRAME]), last=False))
            del self._rest[:FRAME]
        return b"".join(out)

    def close(self) -> bytes:
        """The last frame, which may be empty."""
        return self.feed(b"") + self._sealed(bytes(self._rest), last=True)

    def _sealed(self, frame: bytes, *, last: bool) -> bytes:
        nonce = _nonce(self._prefix, self._number, last=last)
        self._number += 1
        return self._cipher.encrypt(nonce, frame, self._context)


def _nonce(prefix: bytes, number: int, *, last: bool) -> bytes:
    return prefix + number.to_bytes(4, "big") + bytes((last,))


def sealed_range(start: int, length: int) -> tuple[int, int]:
    """Where the frames lie in the sealed file that hold `length` bytes from `start` on: start and length."""
    first, last = start // FRAME, (start + length - 1) // FRAME
    return HEAD + first * _SEALED_FRAME, (last - first + 1) * _SEALED_FRAME


async def opened(
    cipher: AESGCM, context: bytes, head: bytes, blocks: AsyncIterator[bytes], *, first: int = 0, whole: bool = True
) -> AsyncIterator[bytes]:
    """The frames of a file from number `first` on. `blocks`: the sealed file from that frame on. `whole`: to its end.

    Raises Unreadable, also for a file that was cut.
    """
    prefix, number, rest = head[len(_MAGIC) : HEAD], first, b""
    async for block in blocks:
        rest += block
        while len(rest) > _SEALED_FRAME:
            yield _open(cipher, context, prefix, number, rest[:_SEALED_FRAME], (False,))
            number, rest = number + 1, rest[_SEALED_FRAME:]
    yield _open(cipher, context, prefix, number, rest, (True,) if whole else (False, True))


def _open(
    cipher: AESGCM, context: bytes, prefix: bytes, number: int, frame: bytes, may_be_last: tuple[bool, ...]
) -> bytes:
    for last in may_be_last:
        try:
            return cipher.decrypt(_nonce(prefix, number, last=last), frame, context)
        except (InvalidTag, ValueError):
            continue
    raise Unreadable("the file was sealed with another key or under another name, or it is damaged or cut")
