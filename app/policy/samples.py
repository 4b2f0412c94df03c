"""Stored samples of requests, without their content."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from app.db.pool import Connection
from app.policy import sql

KEPT_DAYS = 35


@dataclass(frozen=True, slots=True)
class Sample:
    """One request, or one item of a batch, which stands for `requests` like it. Tokens are estimates, of one of them.

    `deadline`: seconds of its completion window; None: it had none.
    """

    tenant_id: int
    key_id: str
    workflow: str
    task: str
    critical: bool
    kind: str
    model: str
    endpoint: str
    deadline: float | None
    requests: int
    est_tokens: int
    answer_tokens: int


async def store(conn: Connection, found: Sequence[Sample]) -> None:
    """Store samples; those of accounts that were deleted meanwhile are left out."""
    columns = {field.name: [getattr(sample, field.name) for sample in found] for field in fields(Sample)}
    await conn.execute(sql.SAMPLE, columns)


async def since(conn: Connection, moment: datetime, tenant_id: int | None = None) -> list[tuple[str, Sample]]:
    """The samples since then with their accounts, oldest first. `tenant_id` None: of all accounts."""
    rows = await (await conn.execute(sql.SAMPLES, {"since": moment, "tenant_id": tenant_id})).fetchall()
    return [(row[0], Sample(0, *row[1:])) for row in rows]


async def open_batches(conn: Connection, tenant_id: int | None = None) -> list[tuple[str, Sample]]:
    """The batches that are not final, as samples with their accounts. Their answers are part of the estimate, not known apart."""
    rows = await (await conn.execute(sql.OPEN_BATCHES, {"tenant_id": tenant_id})).fetchall()
    return [(row[0], Sample(0, *row[1:])) for row in rows]


async def forget_old(conn: Connection) -> None:
    """Delete the samples that are older than KEPT_DAYS."""
    await conn.execute(sql.FORGET_SAMPLES, {"days": KEPT_DAYS})
