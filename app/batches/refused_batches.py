"""Batches that were refused because of their input file. They have an id and problems, but nothing of them runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.db.pool import Database
from app.engines.outcome import meaning
from app.errors import BadInput, Conflict
from app.files import sql
from app.tenants.service import Tenant


@dataclass(frozen=True, slots=True)
class RefusedBatch:
    """One refused batch. `problems`: what is wrong with its file, as OpenAI's batches list it in `errors`."""

    request_id: UUID
    created_at: datetime
    metadata: dict[str, str] | None
    problems: list[dict[str, Any]]


async def find(database: Database, tenant: Tenant, request_ids: Sequence[UUID]) -> dict[UUID, RefusedBatch]:
    """The refused batches among these, by id."""
    async with database.relaxed() as conn:
        values = {"tenant_id": tenant.tenant_id, "request_ids": list(request_ids)}
        rows = await (await conn.execute(sql.REFUSED, values)).fetchall()
    return {row[0]: RefusedBatch(*row[:3], visible(row[3], tenant)) for row in rows}


def visible(problems: list[dict[str, Any]], tenant: Tenant) -> list[dict[str, Any]]:
    """The problems as a key may read them. Those of lines may quote a request, so not every key reads their messages."""
    if tenant.scope.reads_bodies:
        return problems
    general = {"message": meaning(BadInput.code)}
    return [each | general if each.get("line") is not None else each for each in problems]


def nothing_to(verb: str) -> Conflict:
    """The error for a verb on a refused batch."""
    return Conflict(
        f"The batch was refused because of its file, so there is nothing to {verb}; correct the file and create a new batch"
    )
