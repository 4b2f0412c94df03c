"""Encrypts secrets at rest, derives keys and tokens, and keeps the master key.

A deployment has one master key. Every purpose derives its own key from it (HKDF), so no two purposes share a key.

While the master key is being changed, another one is accepted: what was sealed, hashed or derived with it still works, and
whatever is new is made with the one in use. docs/access.md describes the steps.
"""

import secrets
from contextlib import suppress
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app import key_files
from app.settings import Settings

_VERSION = b"\x01"  # first byte of a sealed value; a new cipher or key gets a new one
_NONCE_BYTES = 12


class Unreadable(Exception):
    """The value was sealed with another key or another context, or it is damaged."""


class MasterKey(bytes):
    """The master key in use. `others`: further ones that are accepted."""

    others: tuple[bytes, ...] = ()


def secret_key(settings: Settings) -> MasterKey:
    """The master key: `SLACKWATER_SECRET_KEY`, or a file in the data directory that is created at first use."""
    configured = settings.secret_key.get_secret_value()
    key = MasterKey(configured.encode() if configured else _kept_key(settings.data_dir / "secret_key"))
    other = settings.secret_key_accepted.get_secret_value().encode()
    key.others = (other,) if other and other != key else ()
    return key


def accepted(key: bytes) -> tuple[bytes, ...]:
    """The master keys that are accepted, the one in use first."""
    return (key, *key.others) if isinstance(key, MasterKey) else (key,)


def key_id(key: bytes) -> str:
    """A name for a master key that says nothing about it: 8 hexadecimal digits."""
    return derive(key, b"key id")[:4].hex()


def bearer_token(key: bytes, purpose: str) -> str:
    """The token by which our processes recognise each other for one purpose. It cannot be made without the master key."""
    return derive(key, f"bearer token: {purpose}".encode()).hex()


def seal(key: bytes, plain: bytes, context: bytes) -> bytes:
    """Encrypt `plain` with AES-256-GCM. Only the same `context` (its owner's id) decrypts it."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _VERSION + nonce + _cipher(key).encrypt(nonce, plain, context)


def unseal(key: bytes, sealed: bytes, context: bytes) -> bytes:
    """Decrypt a value that `seal` returned under an accepted master key. Raises `Unreadable`."""
    version, nonce, box = sealed[:1], sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
    if version != _VERSION:
        raise Unreadable(f"sealed with the unknown version {version.hex() or 'none'}")
    for each in accepted(key):
        with suppress(InvalidTag, ValueError):
            return _cipher(each).decrypt(nonce, box, context)
    raise Unreadable("sealed with another secret key, or damaged")


def _cipher(key: bytes) -> AESGCM:
    return AESGCM(derive(key, b"secrets at rest"))


def derive(key: bytes, purpose: bytes) -> bytes:
    """The key of one purpose, 32 bytes, derived from the master key."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"slackwater " + purpose).derive(key)


def signing_key(key: bytes, purpose: str) -> Ed25519PrivateKey:
    """The Ed25519 key of one purpose, derived from the master key."""
    return Ed25519PrivateKey.from_private_bytes(derive(key, f"signatures: {purpose}".encode()))


def _kept_key(path: Path) -> bytes:
    """Read the key file. The first process creates it."""
    if not path.exists():
        key_files.create(path, secrets.token_urlsafe(48))
    return path.read_bytes().strip()
