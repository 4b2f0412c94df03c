"""A fake identity provider: OpenID Connect's discovery, keys, authorization and token endpoints, without people or passwords.

Whoever asks is signed in at once, with the claims of `claims`. Codes work once, and only with the verifier of their challenge.
"""

import base64
import hashlib
import secrets
import time
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

ISSUER = "https://identity.example"
CLIENT, SECRET = "slackwater", "of-the-client"


class FakeIdentityProvider:
    """Use `client` for requests to it. `claims`: of the next token. `algorithm`, `key`: what the next token is signed with.

    `away`: it answers 503. `asked`: how often it was asked about itself.
    """

    def __init__(self) -> None:
        self.key = self.own = RSAKey.generate_key(2048, auto_kid=True)
        self.algorithm = "RS256"
        self.claims: dict[str, Any] = {"sub": "u-1", "preferred_username": "ann"}
        self.client = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.away, self.asked = False, 0
        self._codes: dict[str, dict[str, str]] = {}

    def sign_in(self, url: str) -> str:
        """Do what a browser and a person do with the URL of the authorization endpoint. Returns where the browser is sent."""
        asked = dict(parse_qsl(urlsplit(url).query))
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        return f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state'], 'iss': ISSUER})}"

    def token(self, **claims: Any) -> str:
        """A signed token with these claims."""
        now = int(time.time())
        usual = {"iss": ISSUER, "aud": CLIENT, "iat": now, "exp": now + 300}
        header = {"alg": self.algorithm, "kid": self.key.kid}
        return jwt.encode(header, {**usual, **self.claims, **claims}, self.key, algorithms=[self.algorithm])

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += request.method == "GET"
        if self.away:
            return httpx.Response(503)
        if request.url.path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "authorize", "token_endpoint": "token", "jwks_uri": "keys"}
            found = {name: f"{ISSUER}/{path}" for name, path in places.items()}
            return httpx.Response(200, json={"issuer": ISSUER, **found})
        if request.url.path == "/keys":
            return httpx.Response(200, json=KeySet([self.own]).as_dict(private=False))
        return self._exchange({name: values[0] for name, values in parse_qs(request.content.decode()).items()})

    def _exchange(self, given: dict[str, str]) -> httpx.Response:
        asked = self._codes.pop(given.get("code", ""), None)
        verifier = given.get("code_verifier", "").encode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=").decode()
        right = asked is not None and asked["code_challenge"] == challenge
        if not right or given.get("client_secret") != SECRET or given["redirect_uri"] != asked["redirect_uri"]:  # type: ignore[index]
            return httpx.Response(400, json={"error": "invalid_grant"})
        return httpx.Response(200, json={"id_token": self.token(nonce=asked["nonce"])})  # type: ignore[index]
