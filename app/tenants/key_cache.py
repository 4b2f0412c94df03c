"""The keys that were shown a moment ago, so that a caller's next request need not ask the database who it is.

Only good keys are kept, and under a digest: the process's memory holds no bearer token.
"""

import hashlib
from dataclasses import dataclass, field

from app.db.pool import Database
from app.db.stale_if_error import StaleIfError
from app.tenants import service
from app.tenants.service import Tenant

TRUST_SECONDS = 1.0
_MOST = 4096


@dataclass
class KeyCache:
    """Of one API process.

    A key that is revoked, expires or gets other limits is taken for what it was for `TRUST_SECONDS`, and for longer only while
    the database does not answer.
    """

    database: Database
    pepper: bytes = field(repr=False)
    _seen: dict[bytes, StaleIfError[Tenant | None]] = field(default_factory=dict, repr=False)

    async def tenant(self, token: str) -> Tenant | None:
        """The tenant that a bearer token speaks for; None when it is unknown, expired or revoked. Raises as the database does."""
        digest = hashlib.sha256(token.encode()).digest()
        memory = self._seen.setdefault(digest, StaleIfError())
        try:
            return await memory.get(lambda: self._ask(token), TRUST_SECONDS)
        finally:
            if memory.last is None and self._seen.get(digest) is memory:
                del self._seen[digest]
            while len(self._seen) > _MOST:
                del self._seen[next(iter(self._seen))]

    async def _ask(self, token: str) -> Tenant | None:
        async with self.database.relaxed() as conn:
            return await service.authenticate(conn, self.pepper, token)
