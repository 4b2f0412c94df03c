"""The sealed form of a body. Pure.

    0x01 | flags (1) | nonce (12) | AES-256-GCM of the body, with its tag (16)

Flags and context are authenticated, so a body opens only at the place for which it was sealed. No body in the clear begins with
0x01, because bodies are JSON; the first byte therefore tells which of the two it is. Bodies from COMPRESS_FROM on are compressed
first. A nonce is a random number for each use of a key by a process, and a count (NIST SP 800-38D, 8.2.1).
"""

import os
import zlib
from itertools import count

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
COMPRESS_FROM = 2048

_SEALED = b"\x01"
_COMPRESSED, _INCOMPLETE = 1, 2
_NONCE = slice(2, 14)
_HEADS = tuple(_SEALED + bytes((flags,)) for flags in range(4))
_LEVEL = 1


class Unreadable(Exception):
    """The body was sealed with another key or for another place, or it is damaged."""


def new_key() -> bytes:
    """A random data key."""
    return os.urandom(KEY_BYTES)


def is_sealed(body: bytes) -> bool:
    """Whether a stored body is sealed."""
    return body[:1] == _SEALED


def is_incomplete(sealed: bytes) -> bool:
    """Whether the sealed answer has the status `incomplete`. It can be seen without the key."""
    return bool(sealed[1] & _INCOMPLETE)


class Nonces:
    """The nonces of one use of a key. Threads may share it. It is good for 2^32 bodies, then `next` raises OverflowError."""

    def __init__(self) -> None:
        self._use = os.urandom(8)
        self._count = count()

    def next(self) -> bytes:
        """A nonce that was not used before."""
        return self._use + next(self._count).to_bytes(4, "big")


def seal(cipher: AESGCM, nonce: bytes, body: bytes, context: bytes, *, incomplete: bool = False) -> bytes:
    """Seal a body for the place `context`. `nonce`: of `Nonces`."""
    flags = _INCOMPLETE if incomplete else 0
    if len(body) >= COMPRESS_FROM:
        flags |= _COMPRESSED
        body = zlib.compress(body, _LEVEL)
    head = _HEADS[flags]
    return head + nonce + cipher.encrypt(nonce, body, head + context)


def unseal(cipher: AESGCM, sealed: bytes, context: bytes) -> bytes:
    """The body that was sealed for this place. Raises Unreadable."""
    try:
        body = cipher.decrypt(sealed[_NONCE], sealed[_NONCE.stop :], sealed[:2] + context)
    except (InvalidTag, ValueError) as error:
        raise Unreadable("sealed with another key or for another place, or damaged") from error
    return zlib.decompress(body) if sealed[1] & _COMPRESSED else body
