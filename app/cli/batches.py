"""Look at batches, and pause, resume, cancel or retry one, straight on the database."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from rich.console import Console
from rich.table import Column, Table

from app.batches import lifecycle
from app.batches.why import Why, why
from app.cli.text import plain
from app.db.pool import Database
from app.engines import catalogue
from app.errors import Conflict, NotFound
from app.failure import Failure, explained
from app.queue import reading
from app.queue.reading import Status
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant

Answer = TypeVar("Answer")


def show_latest(settings: Settings, account: str, limit: int, console: Console) -> None:
    """Print the newest batches of an account."""

    async def call(database: Database, tenant: Tenant) -> list[Status]:
        return await reading.latest(database, tenant.tenant_id, limit)

    table = Table(Column("request id", no_wrap=True), "model", "state", "done", "failed", "of", "submitted", "ended")
    for batch in on_database(settings, account, call):
        counts = (str(batch.ok), str(batch.failed), str(batch.total))
        times = (_moment(batch.created_at), _moment(batch.finalized_at))
        table.add_row(str(batch.request_id), plain(batch.model), str(batch.state), *counts, *times)
    console.print(table)


def show(settings: Settings, account: str, request_id: UUID, console: Console) -> None:
    """Print how one batch stands, when it will be done and what it waits for."""

    async def call(database: Database, tenant: Tenant) -> Why:
        found = await why(database, tenant.tenant_id, request_id)
        if found is None:
            raise NotFound(f"No batch {request_id} in account {account}")
        return found

    found = on_database(settings, account, call)
    status = found.status
    facts = {
        "state": f"{status.state}, run {status.run}",
        "items": f"{status.ok} done, {status.failed} failed, of {status.total}",
        "tokens": f"{status.prompt_tokens} in (cached {status.cached_tokens}), {status.completion_tokens} out",
        "submitted": _moment(status.created_at),
        "ended": _moment(status.finalized_at),
        "expires": _moment(status.expires_at),
    }
    if estimate := found.estimate:
        eta = "unknown" if estimate.eta_seconds is None else f"in about {estimate.eta_seconds:.0f} s"
        facts["done"] = f"{eta} (confidence: {estimate.confidence})"
    if waiting := found.waiting:
        facts["waits"] = waiting.message
    for name, value in facts.items():
        console.print(f"{name:<10} {value}", markup=False, highlight=False)


def halt(settings: Settings, account: str, request_id: UUID, verb: lifecycle.Verb) -> None:
    """Pause, resume or cancel a batch."""

    async def call(database: Database, tenant: Tenant) -> None:
        await lifecycle.halt(database, tenant, request_id, verb)

    on_database(settings, account, call)


def retry(settings: Settings, account: str, request_id: UUID) -> int:
    """Run the unanswered items of a final batch again. Returns how many."""
    models = catalogue.load(settings.models_file)

    async def call(database: Database, tenant: Tenant) -> int:
        return await lifecycle.retry(database, settings, models, tenant, request_id)

    return on_database(settings, account, call)


def on_database(settings: Settings, account: str, verb: Callable[[Database, Tenant], Awaitable[Answer]]) -> Answer:
    """The answer of one verb for an account. Raises Failure."""

    async def call() -> Answer:
        async with Database.of(settings, "cli", patience_seconds=5) as database:
            async with database.relaxed() as conn:
                tenant = Tenant(await tenants.find_tenant(conn, account), account)
            return await verb(database, tenant)

    with explained():
        try:
            return asyncio.run(call())
        except (NotFound, Conflict) as error:
            raise Failure(error.message, "`slackwater batch list` shows the batches of an account.") from error


def _moment(moment: datetime | None) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}" if moment else "–"
