"""Seals the values behind an item's placeholders. Pure.

A vault is the JSON of the values by placeholder, encrypted with AES-256-GCM under a key of the account. It opens only at its
place: the item, or a line of an uploaded file.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from types import MappingProxyType

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.crypto import derive

OF_FILE = b"line of a file"
_VERSION, _NONCE_BYTES = b"\x01", 12
NO_VALUES: Mapping[str, str] = MappingProxyType({})


def of_item(batch_id: int, seq: int) -> bytes:
    """The place of an item."""
    return b"%d.%d" % (batch_id, seq)


class Vaults:
    """Seals and opens the vaults of one account."""

    def __init__(self, master_key: bytes, tenant_id: int) -> None:
        self._cipher = AESGCM(_key(master_key, b"vaults of account %d" % tenant_id))

    def sealed(self, values: Mapping[str, str], place: bytes) -> bytes:
        """The vault with these values."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._cipher.encrypt(nonce, orjson.dumps(values), place)

    def opened(self, vault: bytes | None, place: bytes) -> Mapping[str, str]:
        """The values in a vault. None of them where it was sealed under another key or for another place."""
        if vault is not None and vault[:1] == _VERSION:
            with suppress(InvalidTag, ValueError):
                box = vault[1 + _NONCE_BYTES :]
                values: Mapping[str, str] = orjson.loads(self._cipher.decrypt(vault[1 : 1 + _NONCE_BYTES], box, place))
                return values
        return NO_VALUES


@lru_cache(maxsize=1024)
def _key(master_key: bytes, purpose: bytes) -> bytes:
    return derive(master_key, purpose)


def hash_key(master_key: bytes) -> bytes:
    """The key of the hashes of redacted requests: without it, nobody can test a guess of what was redacted."""
    return _key(master_key, b"hashes of redacted requests")
