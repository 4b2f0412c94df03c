"""`…/ai/queue`, `…/ai/fairness`, `…/ai/find`, `…/ai/keys`, `…/ai/audit`: an account's queue and its turn, what an id is, its
keys, and what was done.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from app import clock, places
from app.api.deps import Caller, PartsDep
from app.api.envelope import success
from app.api.parameter_limits import Text, cursor
from app.audit import log
from app.audit.log import Entry
from app.batches import fair_shares, lookups, queue_outlook
from app.batches.fair_shares import Share, Standing
from app.batches.lookups import Finding
from app.batches.queue_outlook import ModelQueue
from app.errors import BadInput
from app.tenants import key_list
from app.tenants.key_list import KeyRow

router = APIRouter(prefix="/ai")


class FindQuery(BaseModel):
    """The query of a search."""

    model_config = ConfigDict(extra="forbid")

    q: str = Field(
        min_length=lookups.FEWEST,
        max_length=lookups.LONGEST,
        description="an id or its first four digits, the beginning of a batch's name, a tag, or the whole name of something",
    )


class KeysQuery(BaseModel):
    """The query of a list of keys."""

    model_config = ConfigDict(extra="forbid")

    view: str = Field("live", json_schema_extra={"enum": list(key_list.VIEWS)}, description="which keys")
    after: Text | None = cursor(f"^{places.TIME}{key_list.ID}$")


class AuditQuery(BaseModel):
    """The query of the audit log."""

    model_config = ConfigDict(extra="forbid")

    target: Text | None = Field(None, description="only what was done to this, like the id of a batch")
    before: int | None = Field(None, ge=1, le=2**63 - 1, description="only records before this one")
    limit: int = Field(50, ge=1, le=200, description="records in one page")


@router.get("/queue")
async def queue(tenant: Caller, parts: PartsDep) -> Response:
    """What waits and runs of the account's batches, by model: tokens, how urgent they are, and when they will be done.

    `held_tokens` wait for somebody: they are paused, or wait for money or a key. The deadlines count the others.
    """
    async with parts.database.relaxed() as conn:
        found = await queue_outlook.read(conn, parts.catalogue, tenant.tenant_id)
    return success(queue_view(found))


def queue_view(found: Sequence[ModelQueue]) -> dict[str, Any]:
    """The queue by model as callers read it, of one account or of all."""
    now = clock.now()
    return {"at": clock.iso(now), "models": [_model_view(each, now) for each in found]}


def _model_view(each: ModelQueue, now: datetime) -> dict[str, Any]:
    done = None if each.seconds is None else now + timedelta(seconds=each.seconds)
    return {
        "model": each.model,
        "batches": each.batches,
        "tokens": round(each.tokens),
        "held_tokens": round(each.held),
        "due_within_1h_tokens": round(each.urgent[0]),
        "due_within_24h_tokens": round(each.urgent[1]),
        "engines_ready": each.engines,
        "tokens_per_second": None if each.pace is None else round(each.pace, 1),
        "spread": None if each.spread is None else round(each.spread, 3),
        "eta_seconds": None if each.seconds is None else round(each.seconds, 1),
        "eta": clock.iso(done),
    }


@router.get("/fairness")
async def fairness(tenant: Caller, parts: PartsDep) -> Response:
    """What the account is due of the engines of each model on which it has queued work, what it got, and whether it is next.

    `due` and `got` are shares of one of what all accounts with queued work get; `got` counts tokens since `since`.
    """
    async with parts.database.relaxed() as conn:
        found = await fair_shares.standing(conn)
    return success(standing_view(found, tenant.tenant_id))


def standing_view(found: Standing, tenant_id: int | None) -> dict[str, Any]:
    """Fair shares as callers read them: of one account, which sees no other's name, or of all."""
    shown = [
        share_view(model, each, named=tenant_id is None)
        for model, members in found.pools.items()
        for each in members
        if tenant_id in (None, each.row.tenant_id)
    ]
    return {"since": clock.iso(found.since), "shares": shown}


def share_view(model: str, share: Share, *, named: bool) -> dict[str, Any]:
    """One account's share of the engines of a model."""
    row = share.row
    return {
        "model": model,
        **({"account": row.account} if named else {}),
        "weight": row.weight,
        "due": round(share.due, 4),
        "got": None if share.got is None else round(share.got, 4),
        "tokens": share.tokens,
        "ready_chunks": row.ready,
        "inflight_tokens": row.inflight,
        "max_inflight_tokens": row.max_inflight,
        "next": share.next,
    }


@router.get("/find")
async def find(tenant: Caller, parts: PartsDep, query: Annotated[FindQuery, Query()]) -> Response:
    """What an id, a name or a tag belongs to: batches, webhooks, deliveries, keys and engines, a few of each kind."""
    async with parts.database.relaxed() as conn:
        found = await lookups.find(conn, tenant.tenant_id, query.q)
    return success(finding_view(found))


def finding_view(found: Finding) -> list[dict[str, Any]]:
    """What was found. `of`: what it belongs to, such as an account or a model."""
    tags = [{"kind": "tag", "id": found.tag, "name": found.tag, "of": None}] if found.tag else []
    batches = [
        {
            "kind": "batch",
            "id": str(each.request_id),
            "name": each.name or None,
            "of": each.account,
        }
        for each in found.batches
    ]
    others = [
        {"kind": each.kind, "id": each.identity, "name": each.name or None, "of": each.of or None}
        for each in found.others
    ]
    return [*batches, *others, *tags]


@router.get("/keys")
async def keys(tenant: Caller, parts: PartsDep, query: Annotated[KeysQuery, Query()]) -> Response:
    """The API keys of the account without their secrets, newest first, with their use in the present minute."""
    if query.view not in key_list.VIEWS:
        raise BadInput(f"view: must be one of {', '.join(key_list.VIEWS)}, got {query.view[:20]}", param="view")
    after = places.read(query.after, key_list.parse_id)
    async with parts.database.relaxed() as conn:
        rows, more = await key_list.keys(conn, tenant.tenant_id, query.view, None, after)
    cursor = places.written(rows[-1].created_at, rows[-1].key_id) if more else None
    info = {"count": len(rows), "per_page": key_list.PAGE_KEYS, "cursor": cursor}
    return success([_key_view(row) for row in rows], result_info=info)


def _key_view(row: KeyRow) -> dict[str, Any]:
    return {
        "id": row.key_id,
        "name": row.name,
        "role": row.role,
        "models": list(row.models or []),
        "endpoints": list(row.endpoints or []),
        "networks": list(row.networks or []),
        "pins": list(row.pins or []),
        "requests_per_minute": row.requests_per_minute,
        "tokens_per_minute": row.tokens_per_minute,
        "requests_this_minute": row.requests or 0,
        "tokens_this_minute": row.tokens or 0,
        "created_at": clock.iso(row.created_at),
        "last_used_at": clock.iso(row.last_used_at),
        "expires_at": clock.iso(row.expires_at),
        "revoked_at": clock.iso(row.revoked_at),
    }


@router.get("/audit")
async def audit(tenant: Caller, parts: PartsDep, query: Annotated[AuditQuery, Query()]) -> Response:
    """What was done to the account and by whom, newest first: changes, reveals and refusals.

    No content of a request or an answer is among it.
    """
    async with parts.database.relaxed() as conn:
        found = await log.latest(
            conn, account=tenant.account_id, target=query.target, before=query.before, limit=query.limit + 1
        )
    page, info = audit_page(found, query.limit)
    return success(page, result_info=info)


def audit_page(found: list[Entry], limit: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A page of records, and what is beside it. `found`: one more than the limit if there are more."""
    page = [asdict(each) | {"at": clock.iso(each.at)} for each in found[:limit]]
    return page, {"count": len(page), "before": page[-1]["audit_id"] if len(found) > limit else None}
