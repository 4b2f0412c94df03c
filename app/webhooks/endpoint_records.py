"""What the audit log has of an endpoint: its terms, never a secret, and of its URL the host, since the rest may be one."""

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

from app.audit import log
from app.audit.acts import Act
from app.audit.record import Record
from app.db.pool import Connection
from app.tenants import service as tenants

if TYPE_CHECKING:
    from app.webhooks.endpoints import Endpoint

_TERMS = (
    "name",
    "queue_id",
    "model",
    "kinds",
    "format",
    "tags",
    "metadata",
    "ordered",
    "max_in_flight",
    "max_per_second",
)
Terms = Mapping[str, Any] | None


async def record(
    conn: Connection, tenant_id: int, act: Act, target: UUID | str, before: Terms = None, after: Terms = None
) -> None:
    """Record what was done to an endpoint. Call in the transaction that does it."""
    account = await tenants.account_id_of(conn, tenant_id)
    await log.record(conn, Record(act, str(target), account, before=before, after=after))


def terms(endpoint: "Endpoint") -> dict[str, Any]:
    """What its owner has set of an endpoint, and its state."""
    found = {name: getattr(endpoint, name) for name in _TERMS} | {"state": str(endpoint.state)}
    return found if endpoint.url is None else found | {"url": _shown(endpoint.url)}


def _shown(url: str) -> str:
    """The host, and the beginning of the hash of the whole URL, by which a change of the rest is seen."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    return f"{urlsplit(url).scheme}://{urlsplit(url).hostname} (sha256 {digest})"


def origin(url: str) -> str:
    """Scheme, host and port of a URL."""
    place = urlsplit(url)
    host = f"[{place.hostname}]" if ":" in (place.hostname or "") else place.hostname
    return f"{place.scheme}://{host}" + (f":{place.port}" if place.port else "")
