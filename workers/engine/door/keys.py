"""The keys of callers, and what each may use per minute: asked of the Slackwater API, cached, and renewed in the background.

An answer is used without asking for FRESH_SECONDS; keys in use are renewed every RENEW_SECONDS. While the API does not answer,
old answers hold for HELD_SECONDS: so long may a key be used that was revoked. The API counts the limits of all doors and gateways
together: each door reports what it let in, and gets the sum. So a limit may be exceeded by what comes within one renewal.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

import aiohttp

PATH = "/internal/door/keys"
RENEW_SECONDS = 1.0
FRESH_SECONDS = 5.0
HELD_SECONDS = 3600.0
DENIED_SECONDS = 1.0  # an unknown key is refused for this long without a question
PATIENCE_SECONDS = 3.0  # for an answer about a key that was never seen
KNOWN_PATIENCE_SECONDS = 0.1  # for an answer about a key that was not used for a while
REST_SECONDS = 5.0  # after a failure, no caller with a known key waits for a question for this long
UNKNOWN_REST_SECONDS = 0.5  # the same for a key that was never seen, which has nothing to lose
MOST_KEYS = 4096
MOST_AT_ONCE = 256  # keys in one question
MOST_KEY_BYTES = 1024  # a longer key is none: the API would refuse the question, as if it were at fault

MOST_COUNT = 2**31 - 1  # requests or tokens of one key in one question; the rest is reported in the next one

_USED = ("answered", "prompt_tokens", "completion_tokens")
_NO_KEY = "The API key is unknown, expired or revoked"

T = TypeVar("T")

log = logging.getLogger("vllm.door")  # below vLLM's logger, so that vLLM's handlers print it


@dataclass(slots=True)
class Refusal:
    """The answer to a caller who may not enter. `seconds`: until another attempt makes sense; 0: unknown."""

    status: int
    message: str
    seconds: int = 0


@dataclass(slots=True)
class KeyEntry:
    """What is known of one key. Times are monotonic seconds.

    `account`: None: the key is unknown, expired or revoked. `most_…`: per minute; None: no limit. `used_…`: in the minute that
    ends at `minute_ends`, by all doors and gateways as the API said, and what was let in since (`new_…`). The rest is what was
    answered since, for the ledger.
    """

    key_id: str = ""
    account: str | None = None
    most_requests: int | None = None
    most_tokens: int | None = None
    asked: float = 0.0
    used: float = 0.0
    minute_ends: float = 0.0
    used_requests: int = 0
    used_tokens: int = 0
    new_requests: int = 0
    new_tokens: int = 0
    answered: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def limited(self) -> bool:
        """Whether it has a limit."""
        return self.most_requests is not None or self.most_tokens is not None

    def take(self, tokens: int, now: float) -> Refusal | None:
        """Count a request of about so many tokens, unless a limit is reached."""
        if now >= self.minute_ends:
            self.used_requests = self.used_tokens = 0
            self.minute_ends = now + 60
        requests, used = self.used_requests + self.new_requests, self.used_tokens + self.new_tokens
        wait = max(1, round(self.minute_ends - now))
        if self.most_requests is not None and requests >= self.most_requests:
            return Refusal(429, f"Rate limit: {self.most_requests} requests a minute reached by this key", wait)
        if self.most_tokens is not None and used + tokens > self.most_tokens:
            return Refusal(429, f"Rate limit: {self.most_tokens} tokens a minute reached by this key", wait)
        self.new_requests += 1
        self.new_tokens += tokens
        return None

    def update(self, answer: dict[str, Any], now: float) -> None:
        """Take over an answer of the API."""
        self.account, self.key_id = answer.get("account"), answer.get("key_id") or self.key_id
        self.most_requests, self.most_tokens = answer.get("requests_per_minute"), answer.get("tokens_per_minute")
        self.used_requests, self.used_tokens = answer.get("requests", 0), answer.get("tokens", 0)
        self.minute_ends, self.asked = now + answer.get("seconds", 60), now


class DoorKeys:
    """`on_worker` gets the address where the engine's worker receives announcements, whenever the API says it."""

    def __init__(self, api: str, token: str, on_worker: Callable[[str], None], *, pass_unknown: bool) -> None:
        self._url = api + PATH
        self._token = token
        self._on_worker = on_worker
        self._pass_unknown = pass_unknown
        self._entries: dict[bytes, KeyEntry] = {}
        self._denied: dict[bytes, float] = {}  # when the API said that the key is none
        self._asking: dict[bytes, asyncio.Task[None]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._failed = -REST_SECONDS  # monotonic second of the last failure, if no question succeeded since

    async def enter(self, authorization: bytes, tokens: int | None) -> KeyEntry | Refusal:
        """The caller's key, or why it is refused. Counts a request of about so many tokens; None: it does not count.

        Waits only for a key that was not used for a while, and never long.
        """
        scheme, _, secret = authorization.partition(b" ")
        secret = secret.strip()
        if scheme.lower() != b"bearer" or not secret:
            return Refusal(401, "Send your API key as `Authorization: Bearer <key>`")
        if len(secret) > MOST_KEY_BYTES:
            return Refusal(401, _NO_KEY)
        digest, now = hashlib.sha256(secret).digest(), monotonic()
        entry = self._entries.get(digest)
        if (entry is None or now - entry.asked > FRESH_SECONDS) and not self._is_denied(digest):
            if entry is None:
                await self._ask(digest, secret, PATIENCE_SECONDS, UNKNOWN_REST_SECONDS)
            else:
                await self._ask(digest, secret, KNOWN_PATIENCE_SECONDS, REST_SECONDS)
            entry = self._entries.get(digest)
        if entry is None and self._is_denied(digest):
            return Refusal(401, _NO_KEY)
        if entry is None or monotonic() - entry.asked > HELD_SECONDS:
            if self._pass_unknown:
                return KeyEntry(account="")
            return Refusal(503, "API keys cannot be checked now, please try again", 2)
        entry.used = now
        self._renew()
        refusal = entry.take(tokens, now) if entry.limited and tokens is not None else None
        return refusal or entry

    async def close(self) -> None:
        """Stop asking."""
        if self._renewing is not None:
            self._renewing.cancel()
        if self._session is not None:
            await self._session.close()

    def _is_denied(self, digest: bytes) -> bool:
        said = self._denied.get(digest)
        return said is not None and monotonic() - said < DENIED_SECONDS

    async def _ask(self, digest: bytes, secret: bytes, patience_seconds: float, rest_seconds: float) -> None:
        """Ask about one key, unless a question failed just now. Callers of the same key share the question."""
        if monotonic() < self._failed + rest_seconds:
            return
        task = self._asking.get(digest)
        if task is None:
            task = self._asking[digest] = asyncio.create_task(self._ask_once(digest, secret))
            task.add_done_callback(lambda _: self._asking.pop(digest, None))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await asyncio.shield(task)

    async def _ask_once(self, digest: bytes, secret: bytes) -> None:
        entry = self._entries.get(digest) or KeyEntry()
        if not await self._post([(entry, {"token": secret.decode(errors="replace"), **_counts(entry)})]):
            return
        if entry.account is not None:
            _keep(self._entries, digest, entry)
        else:
            self._entries.pop(digest, None)
            _keep(self._denied, digest, monotonic())

    def _renew(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.create_task(self._keep_renewing())

    async def _keep_renewing(self) -> None:
        """Renew the keys in use and report their counts, until no key is in use."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            since = monotonic() - FRESH_SECONDS
            used = [e for e in self._entries.values() if e.used > since or any(_counts(e).values())]
            if not used:
                return
            for start in range(0, len(used), MOST_AT_ONCE):
                batch = used[start : start + MOST_AT_ONCE]
                await self._post([(e, {"key_id": e.key_id, **_counts(e)}) for e in batch])
            for digest in [digest for digest, entry in self._entries.items() if entry.account is None]:
                del self._entries[digest]

    async def _post(self, questions: list[tuple[KeyEntry, dict[str, Any]]]) -> bool:
        """Ask, and take over the answers. Returns False if the API does not answer."""
        try:
            said = await self._answers([question for _, question in questions])
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, LookupError, TypeError) as error:
            if monotonic() >= self._failed + REST_SECONDS:
                log.warning("The Slackwater API does not answer the door about keys: %r", error)
            self._failed = monotonic()
            return False
        now, self._failed = monotonic(), -REST_SECONDS
        for (entry, question), answer in zip(questions, said["keys"], strict=True):
            entry.new_requests -= question["requests"]
            entry.new_tokens -= question["tokens"]
            for name in _USED:
                setattr(entry, name, getattr(entry, name) - question[name])
            entry.update(answer, now)
        if said.get("worker"):
            self._on_worker(said["worker"])
        return True

    async def _answers(self, questions: list[dict[str, Any]]) -> dict[str, Any]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=PATIENCE_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        headers = {"authorization": f"Bearer {self._token}"}
        post = self._session.post(self._url, json={"keys": questions}, headers=headers, allow_redirects=False)
        async with post as response:
            if response.status != 200:
                raise ValueError(f"HTTP status {response.status}")
            said: dict[str, Any] = await response.json()
        if len(said["keys"]) != len(questions):
            raise ValueError("another number of answers than of questions")
        return said


def _counts(entry: KeyEntry) -> dict[str, int]:
    used = {name: min(getattr(entry, name), MOST_COUNT) for name in _USED}
    return {"requests": min(entry.new_requests, MOST_COUNT), "tokens": min(entry.new_tokens, MOST_COUNT), **used}


def _keep(kept: dict[bytes, T], digest: bytes, value: T) -> None:
    """Store a value, and forget the oldest ones beyond MOST_KEYS."""
    while len(kept) >= MOST_KEYS:
        del kept[next(iter(kept))]
    kept[digest] = value
