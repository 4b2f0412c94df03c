"""Names for prompts that begin with the same text: the prompt families by which cache hits are reported.

A name is a keyed hash, so nobody can test guesses of a prompt without the installation's secret key.
"""

import hashlib
from functools import lru_cache

from app.crypto import derive

NONE = "-"
MIN_REQUESTS = (
    3  # of one beginning in one process; otherwise single prompts would use up the names that a workflow may have
)
_BYTES = 6
_MOST_SEEN = 20_000


class Families:
    """The families of one process. `secret`: the master key."""

    def __init__(self, secret: bytes) -> None:
        self._key = derive(secret, b"prompt families")
        self._seen: dict[tuple[int, str, bytes], int] = {}

    def name(self, tenant_id: int, workflow: str, beginning: str, requests: int = 1) -> str:
        """The family of requests whose prompts begin so; `-` for an empty beginning, and until MIN_REQUESTS have come."""
        if not beginning:
            return NONE
        salt = tenant_id.to_bytes(8)
        text = beginning.encode(errors="surrogatepass")
        digest = hashlib.blake2b(text, digest_size=_BYTES, key=self._key, salt=salt).digest()
        key = tenant_id, workflow, digest
        seen = self._seen.pop(key, 0) + requests  # put at the end again: those at the front were not seen for longest
        if len(self._seen) >= _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = seen
        return digest.hex() if seen >= MIN_REQUESTS else NONE


@lru_cache(8)
def of(secret: bytes) -> Families:
    """The families of this process under this master key."""
    return Families(secret)
