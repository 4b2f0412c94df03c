"""A cache of recently used keys, so that a caller's next request needs no query.

Only valid keys are cached, by their digest, so that the process's memory holds no bearer token.
"""

import hashlib
from dataclasses import dataclass, field

from app.db.pool import Database
from app.db.stale_if_error import StaleIfError
from app.tenants import service
from app.tenants.service import Tenant

TRUST_SECONDS = 1.0
_MAX_KEYS = 4096


@dataclass
class KeyCache:
    """The cache of one API process.

    A change to a key (revoked, expired, other limits) takes effect after `TRUST_SECONDS`, later if the database does not answer.
    """

    database: Database
    pepper: bytes = field(repr=False)
    _cached: dict[bytes, StaleIfError[Tenant | None]] = field(default_factory=dict, repr=False)

    async def tenant(self, token: str) -> Tenant | None:
        """The tenant of a bearer token. None: the key is unknown, expired or revoked. Raises psycopg's errors."""
        digest = hashlib.sha256(token.encode()).digest()
        entry = self._cached.setdefault(digest, StaleIfError())
        try:
            return await entry.get(lambda: self._ask(token), TRUST_SECONDS)
        finally:
            if entry.last is None and self._cached.get(digest) is entry:
                del self._cached[digest]
            while len(self._cached) > _MAX_KEYS:
                del self._cached[next(iter(self._cached))]

    async def _ask(self, token: str) -> Tenant | None:
        async with self.database.relaxed() as conn:
            return await service.authenticate(conn, self.pepper, token)
