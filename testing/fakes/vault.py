"""A fake of Vault's transit engine: the four calls that `app.sealing.providers.VaultTransit` makes, with real cryptography.

Shapes: developer.hashicorp.com/vault/api-docs/secret/transit. It is not Vault: it has no policies, leases or seal of its own.
"""

import base64
import os
from typing import Any, Self

from aiohttp import web
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TOKEN = "a-token"
_PREFIX = "vault:v1:"


class FakeVault:
    """Use it as an async context manager. `away`: it answers 503. `keys`: what it keeps, by name."""

    def __init__(self) -> None:
        self.keys: dict[str, bytes] = {}
        self.deletable: set[str] = set()
        self.away = False
        self.calls: list[str] = []

    @property
    def url(self) -> str:
        """For `SLACKWATER_KEY_PROVIDER`."""
        return f"vault+http://127.0.0.1:{self._port}/transit"

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/v1/transit/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        verb, _, name = request.match_info["tail"].partition("/")
        self.calls.append(f"{request.method} {verb}")
        if self.away:
            return _errors(503, "Vault is sealed")
        if request.headers.get("X-Vault-Token") != TOKEN:
            return _errors(403, "permission denied")
        given = await request.json() if request.can_read_body else {}
        match request.method, verb:
            case "POST", "encrypt":
                return self._encrypt(name, given)
            case "POST", "decrypt":
                return self._decrypt(name, given)
            case "POST", "keys" if name.endswith("/config"):
                if name.removesuffix("/config") not in self.keys:
                    return _errors(400, "no existing key named so could be found")
                self.deletable.add(name.removesuffix("/config"))
                return web.Response(status=204)
            case "DELETE", "keys" if name in self.deletable:
                self.keys.pop(name, None)
                return web.Response(status=204)
        return _errors(400, "deletion is not allowed for this key")

    def _encrypt(self, name: str, given: dict[str, Any]) -> web.Response:
        key, nonce = self.keys.setdefault(name, os.urandom(32)), os.urandom(12)
        sealed = AESGCM(key).encrypt(
            nonce, base64.b64decode(given["plaintext"]), base64.b64decode(given["associated_data"])
        )
        return web.json_response({"data": {"ciphertext": _PREFIX + base64.b64encode(nonce + sealed).decode()}})

    def _decrypt(self, name: str, given: dict[str, Any]) -> web.Response:
        if name not in self.keys:
            return _errors(400, "encryption key not found")
        sealed = base64.b64decode(given["ciphertext"].removeprefix(_PREFIX))
        context = base64.b64decode(given["associated_data"])
        try:
            plain = AESGCM(self.keys[name]).decrypt(sealed[:12], sealed[12:], context)
        except InvalidTag:
            return _errors(400, "cipher: message authentication failed")
        return web.json_response({"data": {"plaintext": base64.b64encode(plain).decode()}})


def _errors(status: int, text: str) -> web.Response:
    return web.json_response({"errors": [text]}, status=status)
