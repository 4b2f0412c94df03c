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

from app.crypto import accepted, derive

OF_FILE = b"line of a file"
_VERSION, _NONCE_BYTES, _TAG_BYTES = b"\x01", 12, 16
NO_VALUES: Mapping[str, str] = MappingProxyType({})


def of_item(batch_id: int, seq: int) -> bytes:
    """The place of an item."""
    return b"%d.%d" % (batch_id, seq)


def is_vault(data: bytes) -> bool:
    """Whether this has the form of a vault."""
    return data[:1] == _VERSION and len(data) > _NONCE_BYTES + _TAG_BYTES


class Vaults:
    """Seals and opens the vaults of one account."""

    def __init__(self, master_key: bytes, tenant_id: int) -> None:
        purpose = b"vaults of account %d" % tenant_id
        self._ciphers = [AESGCM(_key(key, purpose)) for key in accepted(master_key)]  # of the key in use first

    def sealed(self, values: Mapping[str, str], place: bytes) -> bytes:
        """The vault with these values."""
        nonce = os.urandom(_NONCE_BYTES)
        return _VERSION + nonce + self._ciphers[0].encrypt(nonce, orjson.dumps(values), place)

    def opened(self, vault: bytes | None, place: bytes) -> Mapping[str, str]:
        """The values in a vault. None of them where it was sealed under a key that is not accepted, or for another place."""
        if vault is not None and vault[:1] == _VERSION:
            nonce, box = vault[1 : 1 + _NONCE_BYTES], vault[1 + _NONCE_BYTES :]
            for cipher in self._ciphers:
                with suppress(InvalidTag, ValueError):
                    values: Mapping[str, str] = orjson.loads(cipher.decrypt(nonce, box, place))
                    return values
        return NO_VALUES


@lru_cache(maxsize=1024)
def _key(master_key: bytes, purpose: bytes) -> bytes:
    return derive(master_key, purpose)


def hash_key(master_key: bytes) -> bytes:
    """The key of the hashes of redacted requests: without it, nobody can test a guess of what was redacted."""
    return _key(master_key, b"hashes of redacted requests")
