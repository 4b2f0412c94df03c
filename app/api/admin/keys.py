"""`/admin/v1/keys`: the API keys of all accounts. A secret is shown once, when it is made."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock
from app.admission import key_terms
from app.api import body
from app.api.admin.guard import ACCOUNT, ChangeDep, KeyPath, OperatorDep
from app.api.deps import PartsDep
from app.api.envelope import success
from app.db.pool import Connection
from app.errors import BadInput, NotFound
from app.metering import spend_labels
from app.quantities import seconds_of
from app.tenants import service as tenants
from app.tenants.key_scope import KeyLimits, KeyRole, described
from app.tenants.service import KeyInfo

router = APIRouter()
LONGEST_OVERLAP_DAYS = 30
Listed = Annotated[list[str], Field(max_length=key_terms.MOST_LISTED)]


class NewKey(BaseModel):
    """A key to create. `expires`: a length of time like `90d`, or a day; none: never. An empty list is no limit."""

    model_config = ConfigDict(extra="forbid", strict=True)
    account: Annotated[str, Field(min_length=1, max_length=64)]
    name: Annotated[str, Field(min_length=1, max_length=key_terms.LONGEST_NAME)] = "unnamed"
    role: Annotated[str, Field(json_schema_extra={"enum": list(KeyRole)})] = KeyRole.SUBMITTER.value
    models: Listed = []
    endpoints: Listed = []
    networks: Listed = []
    restore: bool = False
    expires: Annotated[str | None, Field(max_length=32)] = None
    requests_per_minute: Annotated[int | None, Field(ge=1, le=key_terms.MOST_REQUESTS)] = None
    tokens_per_minute: Annotated[int | None, Field(ge=1, le=key_terms.MOST_TOKENS)] = None
    pins: Annotated[dict[str, str], Field(max_length=8)] = {}


class Rotation(BaseModel):
    """How long the old secret still works."""

    model_config = ConfigDict(extra="forbid", strict=True)
    overlap: Annotated[str, Field(max_length=16)] = "24h"


class KeysQuery(BaseModel):
    """Which keys."""

    model_config = ConfigDict(extra="forbid")
    account: Annotated[str | None, Field(pattern=ACCOUNT, description="only of this account")] = None


@router.get("/keys")
async def listing(_: OperatorDep, parts: PartsDep, query: Annotated[KeysQuery, Query()]) -> Response:
    """The keys, without their secrets, oldest first."""
    async with parts.database.relaxed() as conn:
        found = await tenants.list_keys(conn, query.account)
    return success([_view(each) for each in found])


@router.post("/keys")
async def create(request: Request, parts: PartsDep, change: ChangeDep) -> Response:
    """Create a key. The account must exist. The answer shows the key, and nothing else ever will."""
    given = await body.read_model(request, NewKey)
    limited = {name: getattr(given, name) for name in ("role", "models", "endpoints", "networks", "restore")}
    scope = key_terms.scope_of(parts.catalogue, **limited)
    lifetime = None if given.expires is None else key_terms.lifetime_of(given.expires, clock.now())
    limits = KeyLimits(given.requests_per_minute, given.tokens_per_minute)
    for label, value in given.pins.items():
        if (problem := spend_labels.check_pin(label, value)) is not None:
            raise BadInput(f"pins: {problem}", param="pins")
    async with change.transaction() as conn:
        await tenants.find_tenant(conn, given.account)
        terms = (given.name, lifetime, limits, given.pins, scope, change.subject)
        key = await tenants.create_key(conn, parts.secret_key, given.account, *terms)
    return success({"id": key.key_id, "account": given.account, "key": str(key), **described(scope)})


@router.post("/keys/{key_id}/rotate")
async def rotate(key_id: KeyPath, request: Request, parts: PartsDep, change: ChangeDep) -> Response:
    """Give a key a new secret. Its id, limits and expiry stay; the old secret works until the overlap ends."""
    overlap = (await body.read_model(request, Rotation)).overlap
    seconds = seconds_of(overlap)
    if seconds is None or seconds > LONGEST_OVERLAP_DAYS * 86_400:
        raise BadInput(f"overlap: must be a length of time like 24h, at most {LONGEST_OVERLAP_DAYS}d", param="overlap")
    async with change.transaction() as conn:
        account, until = await _account(conn, key_id), clock.now() + timedelta(seconds=seconds)
        key = await tenants.rotate_key(conn, parts.secret_key, key_id, timedelta(seconds=seconds))
    return success({"id": key_id, "account": account, "key": str(key), "old_secret_until": clock.iso(until)})


@router.delete("/keys/{key_id}")
async def revoke(key_id: KeyPath, change: ChangeDep) -> Response:
    """Revoke a key. It stops working within a second."""
    async with change.transaction() as conn:
        account = await _account(conn, key_id)
        if not await tenants.revoke_key(conn, key_id):
            raise NotFound(f"There is no live key {key_id}")
    return success({"id": key_id, "account": account})


async def _account(conn: Connection, key_id: str) -> str:
    """The account of a key. Raises NotFound."""
    found = await tenants.account_of_key(conn, key_id)
    if found is None:
        raise NotFound(f"There is no key {key_id[:64]}")
    return found


def _view(key: KeyInfo) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "account": key.account_id,
        "name": key.name,
        "state": key.state(clock.now()),
        **described(key.scope),
        "requests_per_minute": key.limits.requests,
        "tokens_per_minute": key.limits.tokens,
        "pins": dict(key.pins),
        "created_at": clock.iso(key.created_at),
        "created_by": key.created_by,
        "last_used_at": clock.iso(key.last_used_at),
        "expires_at": clock.iso(key.expires_at),
        "revoked_at": clock.iso(key.revoked_at),
        "old_secret_until": clock.iso(key.old_until),
    }
