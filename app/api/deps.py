"""What routes need: the process's parts, and who is calling."""

from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.errors import AuthenticationError
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from app.webhooks.egress import EgressClient


@dataclass(frozen=True)
class Parts:
    """Everything one API process is made of."""

    settings: Settings
    database: Database
    catalogue: Catalogue
    egress: EgressClient
    secret_key: bytes = field(repr=False)


def parts(request: Request) -> Parts:
    """The parts that the lifespan made."""
    return cast(Parts, request.app.state.parts)


async def caller(account_id: str, request: Request, parts: Annotated[Parts, Depends(parts)]) -> Tenant:
    """The tenant of the bearer key, which must be the account of the path."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise AuthenticationError("Authentication error: send your API key as `Authorization: Bearer <key>`")
    async with parts.database.relaxed() as conn:
        tenant = await tenants.authenticate(conn, parts.secret_key, token.strip())
    if tenant is None:
        raise AuthenticationError("Authentication error: the API key is unknown, expired or revoked")
    if tenant.account_id != account_id:
        raise AuthenticationError("Authentication error: the API key belongs to another account", status=403)
    return tenant


PartsDep = Annotated[Parts, Depends(parts)]
Caller = Annotated[Tenant, Depends(caller)]
