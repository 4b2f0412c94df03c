"""Batches that were refused because of their input file. They have an id and problems, but nothing of them runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from app.db.pool import Database
from app.errors import Conflict
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
    return {row[0]: RefusedBatch(*row) for row in rows}


def nothing_to(verb: str) -> Conflict:
    """The error for a verb on a refused batch."""
    return Conflict(
        f"The batch was refused because of its file, so there is nothing to {verb}; correct the file and create a new batch"
    )
