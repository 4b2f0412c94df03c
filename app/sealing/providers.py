"""Where the keys lie that wrap data keys. None of them is ever in the database.

A provider wraps and unwraps data keys with a key that it keeps under a name (`kek`, key encryption key). Calls may do
network I/O. `context` is authenticated: what was wrapped for one batch unwraps for no other.
"""

import asyncio
import base64
import os
import re
import secrets
import ssl
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app import key_files
from app.errors import KeysUnavailable
from app.settings import Settings

ENTRY_POINTS = "slackwater.key_providers"
_SECONDS = 5.0
_NAME = re.compile(r"[a-z0-9-]+")


class KeyProvider(Protocol):
    """Raises KeysUnavailable, with `gone` where the key does not exist any more. `wrap` creates a key that does not exist."""

    async def wrap(self, kek: str, key: bytes, context: bytes) -> bytes: ...
    async def unwrap(self, kek: str, wrapped: bytes, context: bytes) -> bytes: ...
    async def destroy(self, kek: str) -> None: ...


def of(settings: Settings) -> KeyProvider:
    """The provider that the settings name."""
    return _provider(place(settings), settings.vault_token.get_secret_value())


def place(settings: Settings) -> str:
    """The URL of the provider that the settings name."""
    return settings.key_provider or (settings.data_dir / "keys").absolute().as_uri()


@cache
def _provider(url: str, token: str) -> KeyProvider:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return KeyFolder(Path(unquote(parts.path)))
    if parts.scheme == "entry":
        return _installed(url.partition(":")[2])
    return VaultTransit(url.removeprefix("vault+"), token)


def _installed(name: str) -> KeyProvider:
    """A provider of another package, by the name of its entry point. It is made without arguments."""
    for found in entry_points(group=ENTRY_POINTS, name=name):
        made: KeyProvider = found.load()()
        return made
    raise KeysUnavailable(f"No installed package has the entry point {name!r} in the group {ENTRY_POINTS}")


class KeyFolder:
    """A folder with a file of 32 random bytes for each key. Whoever can read it can read everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def wrap(self, kek: str, key: bytes, context: bytes) -> bytes:
        """Wrap a data key."""
        nonce = os.urandom(12)
        cipher = AESGCM(await asyncio.to_thread(self._key, kek, True))
        return nonce + cipher.encrypt(nonce, key, context)

    async def unwrap(self, kek: str, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap a data key."""
        cipher = AESGCM(await asyncio.to_thread(self._key, kek, False))
        try:
            return cipher.decrypt(wrapped[:12], wrapped[12:], context)
        except (InvalidTag, ValueError) as error:
            raise KeysUnavailable(f"The key {kek} does not open this data key", gone=True) from error

    async def destroy(self, kek: str) -> None:
        """Overwrite and remove a key, if it exists. On copying file systems and in backups of the folder it may live on."""
        await asyncio.to_thread(self._destroy, kek)

    def _key(self, kek: str, may_create: bool) -> bytes:
        path = self._path(kek)
        try:
            if may_create and not path.exists():
                key_files.create(path, secrets.token_hex(32))
            key = bytes.fromhex(path.read_text())
        except FileNotFoundError as error:
            raise KeysUnavailable(f"The key {kek} is not in the folder of keys", gone=True) from error
        except (OSError, ValueError) as error:
            raise KeysUnavailable(f"The key {kek} cannot be read from the folder of keys") from error
        if len(key) != 32:
            raise KeysUnavailable(f"The file of the key {kek} is damaged")
        return key

    def _destroy(self, kek: str) -> None:
        path = self._path(kek)
        try:
            with path.open("r+b") as file:
                file.write(os.urandom(64))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
            key_files.sync(self._folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise KeysUnavailable(f"The key {kek} could not be destroyed") from error

    def _path(self, kek: str) -> Path:
        if not _NAME.fullmatch(kek):
            raise KeysUnavailable(f"{kek!r} is not a name of a key")
        return self._folder / f"{kek}.key"


# With which Vault and OpenBao answer 400 for good: the key does not exist, or it is not the one. They say 400 to much else, too.
_FOR_GOOD = ("encryption key not found", "no existing key named", "message authentication failed")


class VaultTransit:
    """The transit engine of HashiCorp Vault or OpenBao, at the URL of its mount. Keys never leave it.

    API: developer.hashicorp.com/vault/api-docs/secret/transit. Encrypting with a key that does not exist creates it, if the
    token's policy has `create`. `destroy` needs `update` on the key's config and `delete` on the key.
    """

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        mount = parts.path.strip("/") or "transit"
        self._base = f"{parts.scheme}://{parts.netloc}/v1/{mount}"
        self._headers = {"X-Vault-Token": token, "X-Vault-Request": "true"}
        self._tls = ssl.create_default_context()

    async def wrap(self, kek: str, key: bytes, context: bytes) -> bytes:
        """Wrap a data key."""
        data = await self._call("POST", f"encrypt/{kek}", {"plaintext": _text(key), "associated_data": _text(context)})
        return str(data["ciphertext"]).encode()

    async def unwrap(self, kek: str, wrapped: bytes, context: bytes) -> bytes:
        """Unwrap a data key."""
        given = {"ciphertext": wrapped.decode(), "associated_data": _text(context)}
        return base64.b64decode((await self._call("POST", f"decrypt/{kek}", given))["plaintext"])

    async def destroy(self, kek: str) -> None:
        """Delete a key with all its versions. One that does not exist is no error."""
        try:
            await self._call("POST", f"keys/{kek}/config", {"deletion_allowed": True})
        except KeysUnavailable as error:
            if error.gone:
                return
            raise
        await self._call("DELETE", f"keys/{kek}", None)

    async def _call(self, method: str, path: str, given: dict[str, Any] | None) -> dict[str, Any]:
        import aiohttp

        url, timeout = f"{self._base}/{path}", aiohttp.ClientTimeout(total=_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=timeout) as session,
                session.request(method, url, json=given, ssl=self._tls, allow_redirects=False) as answer,
            ):
                status, content = answer.status, await answer.read()
            found = orjson.loads(content) if content else {}
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a timeout is an OSError
            raise KeysUnavailable(f"Vault does not answer: {type(error).__name__}") from error
        if status >= 300:
            reasons = ", ".join(str(each) for each in found.get("errors", ())) or "no reason given"
            gone = status == 404 or (status == 400 and any(words in reasons for words in _FOR_GOOD))
            raise KeysUnavailable(f"Vault answered {status} to {path}: {reasons[:300]}", gone=gone)
        return dict(found.get("data") or {})


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
