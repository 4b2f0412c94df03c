"""Sign-in with an OpenID Connect provider: the code flow with PKCE (S256), state and nonce; and tokens shown to the admin API.

What belongs to one sign-in is sealed in a cookie of the browser that began it, so no other browser can end it. Signatures are
checked with the provider's public keys only. They are fetched again every hour, so that a key that the provider has withdrawn
is not believed for longer; and for a key that is not known, at most every 30 seconds.
"""

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import orjson
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from app import clock, crypto
from app.access import oidc_rules
from app.access.oidc_rules import RoleRule
from app.settings import Settings

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
ATTEMPT_SECONDS = 600.0
_CONTEXT = b"oidc sign-in"
_LEEWAY_SECONDS = 60
_METADATA_SECONDS = 3600.0
_KEYS_SECONDS = 30.0
_TIMEOUT_SECONDS = 10.0
_REST_SECONDS = 10.0  # after a failure, nobody asks the provider about itself for so long
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_MOST_BYTES = 1 << 20


class OidcError(Exception):
    """Somebody could not be signed in. The message may be shown to them, and contains no secret. `subject`: who, if the provider
    knows them.
    """

    def __init__(self, message: str, subject: str | None = None) -> None:
        super().__init__(message)
        self.subject = subject


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sign-in that has begun. `at`: Unix seconds."""

    state: str
    nonce: str
    verifier: str
    at: float


@dataclass(frozen=True, slots=True)
class Person:
    """Whom the provider knows, and the rule that lets them in."""

    subject: str
    rule: RoleRule


@dataclass(slots=True)
class Provider:
    """The provider that the settings name. `client`: replaced in tests."""

    settings: Settings
    key: bytes = field(repr=False)
    client: httpx.AsyncClient | None = None
    _metadata: tuple[float, dict[str, Any]] | None = None
    _keys: tuple[float, KeySet] | None = None
    _failed: tuple[float, str] | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def on(self) -> bool:
        """Whether a provider is set."""
        return bool(self.settings.oidc_issuer)

    async def begin(self, redirect_uri: str) -> tuple[str, str]:
        """The URL that the browser is sent to, and the cookie that it keeps until it returns. Raises OidcError."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        attempt = Attempt(state, nonce, verifier, clock.now().timestamp())
        challenge = base64.urlsafe_b64encode(hashlib.sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self.settings.oidc_client_id,
            "redirect_uri": redirect_uri,
            "scope": self.settings.oidc_scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        if self.settings.oidc_max_age_minutes:
            asked["max_age"] = str(self.settings.oidc_max_age_minutes * 60)
        place = str((await self._about())["authorization_endpoint"])
        sealed = crypto.seal(self.key, orjson.dumps(asdict(attempt)), _CONTEXT)
        return f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}", base64.urlsafe_b64encode(sealed).decode()

    async def end(self, cookie: str, answer: Mapping[str, str], redirect_uri: str) -> Person:
        """Who has signed in, from what the browser brought back. Raises OidcError."""
        attempt = self._attempt(cookie)
        if not secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise OidcError("This sign-in was not begun in this browser; begin again.")
        if answer.get("iss", self.settings.oidc_issuer) != self.settings.oidc_issuer:
            raise OidcError("The answer comes from another identity provider; begin again.")
        if "error" in answer or not answer.get("code"):
            raise OidcError("The identity provider did not sign you in.")
        given = {
            "grant_type": "authorization_code",
            "code": answer["code"],
            "redirect_uri": redirect_uri,
            "client_id": self.settings.oidc_client_id,
            "code_verifier": attempt.verifier,
        }
        if secret := self.settings.oidc_client_secret.get_secret_value():
            given["client_secret"] = secret
        token = await self._call("POST", str((await self._about())["token_endpoint"]), data=given)
        claims = await self._claims(str(token.get("id_token", "")), self.settings.oidc_client_id)
        if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), attempt.nonce.encode()):
            raise OidcError("The identity provider's answer belongs to another sign-in; begin again.")
        if claims.get("azp", self.settings.oidc_client_id) != self.settings.oidc_client_id:
            raise OidcError("The identity provider's answer is for another client.")
        self._check_age(claims)
        return self._person(claims)

    async def bearer(self, token: str) -> Person:
        """Whose access token this is. Raises OidcError, also if no audience is set for such tokens."""
        if not self.on or not self.settings.oidc_audience:
            raise OidcError("Tokens of an identity provider are not accepted here.")
        return self._person(await self._claims(token, self.settings.oidc_audience))

    def _check_age(self, claims: Mapping[str, Any]) -> None:
        """Raise OidcError for somebody who authenticated too long ago, or nobody says when (OpenID Connect Core, 3.1.3.7)."""
        most = self.settings.oidc_max_age_minutes * 60
        if not most:
            return
        at = claims.get("auth_time")
        if isinstance(at, bool) or not isinstance(at, int | float):
            raise OidcError("The identity provider does not say when you authenticated (auth_time). Ask the operator.")
        if clock.now().timestamp() - at > most + _LEEWAY_SECONDS:
            raise OidcError(
                "You authenticated at the identity provider too long ago: sign in there again, then begin again."
            )

    def _attempt(self, cookie: str) -> Attempt:
        try:
            opened = crypto.unseal(self.key, base64.urlsafe_b64decode(cookie), _CONTEXT)
        except (crypto.Unreadable, ValueError):
            raise OidcError("This sign-in was not begun in this browser; begin again.") from None
        attempt = Attempt(**orjson.loads(opened))
        if not 0 <= clock.now().timestamp() - attempt.at <= ATTEMPT_SECONDS:
            raise OidcError("The sign-in took too long; begin again.")
        return attempt

    def _person(self, claims: Mapping[str, Any]) -> Person:
        rule = oidc_rules.decide(oidc_rules.parse(self.settings.oidc_rules), claims)
        named = claims.get("preferred_username") or claims.get("email") or claims["sub"]
        subject = f"{named} ({claims['sub']})" if named != claims["sub"] else str(named)
        if rule is None:
            raise OidcError("You are known, but no rule gives you a role here. Ask the operator.", subject)
        return Person(subject, rule)

    async def _claims(self, token: str, audience: str) -> dict[str, Any]:
        """The claims of a token that the provider signed for this audience, and that is valid now. Raises OidcError."""
        wanted = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self.settings.oidc_issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            iat={"essential": True},
            sub={"essential": True},
        )
        try:
            decoded = await self._decoded(token)
            wanted.validate(decoded.claims)
        except (JoseError, ValueError) as error:
            raise OidcError(f"The identity provider's token is not valid ({type(error).__name__}).") from None
        return dict(decoded.claims)

    async def _decoded(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, await self._key_set(_METADATA_SECONDS), algorithms=ALGORITHMS)
        except (JoseError, ValueError):  # the provider may have a new key
            return jwt.decode(token, await self._key_set(_KEYS_SECONDS), algorithms=ALGORITHMS)

    async def _key_set(self, oldest: float) -> KeySet:
        """The provider's keys; fetched again if they are older than `oldest` seconds."""
        now = clock.monotonic()
        if self._keys is None or now - self._keys[0] > oldest:
            found = await self._fetched(str((await self._about())["jwks_uri"]))
            self._keys = now, KeySet.import_key_set(found)  # type: ignore[arg-type]
        return self._keys[1]

    async def _about(self) -> dict[str, Any]:
        """What the provider says about itself. Raises OidcError."""
        now = clock.monotonic()
        if self._metadata is None or now - self._metadata[0] > _METADATA_SECONDS:
            place = f"{self.settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration"
            found = await self._fetched(place)
            if found.get("issuer") != self.settings.oidc_issuer:
                raise OidcError("The identity provider has another name than SLACKWATER_OIDC_ISSUER.")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                _check_url(str(found.get(name, "")))
            self._metadata = now, found
        return self._metadata[1]

    async def _fetched(self, url: str) -> dict[str, Any]:
        """What the provider publishes. One question at a time, and none for a while after a failure. Raises OidcError."""
        async with self._asking:
            if self._failed is not None and clock.monotonic() - self._failed[0] < _REST_SECONDS:
                raise OidcError(self._failed[1])
            try:
                found = await self._call("GET", url)
            except OidcError as error:
                self._failed = clock.monotonic(), str(error)
                raise
            self._failed = None
            return found

    async def _call(self, method: str, url: str, **sent: Any) -> dict[str, Any]:
        _check_url(url)
        try:
            if self.client is not None:
                answer = await self.client.request(method, url, **sent)
            else:
                async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS) as client:
                    answer = await client.request(method, url, **sent)
            answer.raise_for_status()
            found = orjson.loads(answer.content) if len(answer.content) <= _MOST_BYTES else None
        except (httpx.HTTPError, ValueError) as error:
            raise OidcError(f"The identity provider does not answer as it should ({type(error).__name__}).") from None
        if not isinstance(found, dict):
            raise OidcError("The identity provider does not answer as it should.")
        return found


def problem(settings: Settings) -> str | None:
    """What is wrong with the settings of the provider. None: nothing, or there is none."""
    if not settings.oidc_issuer:
        return None
    try:
        _check_url(settings.oidc_issuer)
        rules = oidc_rules.parse(settings.oidc_rules)
    except (OidcError, oidc_rules.RuleError) as error:
        return str(error)
    if not rules:
        return "SLACKWATER_OIDC_RULES is empty, so nobody could sign in"
    if not settings.oidc_client_id:
        return "SLACKWATER_OIDC_CLIENT_ID is empty"
    if (
        settings.oidc_audience == settings.oidc_client_id
    ):  # or what signs somebody in to the console would open the admin API
        return "SLACKWATER_OIDC_AUDIENCE is the client's id; register an API at the provider, and name its audience"
    return None


def _check_url(url: str) -> None:
    place = urlsplit(url)
    if place.scheme != "https" and (place.scheme != "http" or place.hostname not in _LOOPBACK):
        raise OidcError("The identity provider must be reached by https.")
