"""An account's webhooks, straight on the database: where they go, what was sent, and sending it again."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from rich.console import Console
from rich.table import Column, Table

from app import clock
from app.cli.admin import on_database
from app.cli.text import plain
from app.crypto import secret_key
from app.db.pool import Connection
from app.engines import catalogue
from app.errors import BadInput, NotFound
from app.failure import Failure
from app.settings import Settings
from app.states import DeliveryState
from app.tenants import service as tenants
from app.webhooks import deliveries, endpoints
from app.webhooks.deliveries import Attempt, Delivery
from app.webhooks.egress import Egress
from app.webhooks.endpoints import Endpoint, Filter, Keys
from app.webhooks.formats import known_kinds
from app.webhooks.rules import USUAL_KINDS, Limits

Answer = TypeVar("Answer")
PATIENCE_SECONDS = 20.0  # for the outcome of a test


def create(
    settings: Settings,
    account: str,
    url: str,
    name: str,
    of: Filter = Filter(),  # noqa: B008  (frozen)
    events: Sequence[str] = (),
    shape: str = "workers_ai",
    limits: Limits = Limits(),  # noqa: B008  (frozen)
    *,
    asymmetric: bool = False,
) -> tuple[UUID, Keys]:
    """Register a webhook, without `events` for the usual ones; returns its id and its keys, readable this once."""
    chosen = _known(settings, of)

    async def verb(conn: Connection) -> tuple[UUID, Keys]:
        checked = await _checked_url(settings, conn, account, url)
        async with conn.transaction():
            endpoint, keys = await endpoints.create(
                conn,
                key=secret_key(settings),
                tenant_id=await tenants.ensure_tenant(conn, account),
                account_id=account,
                name=name,
                url=checked,
                kinds=list(events) or known_kinds(shape, USUAL_KINDS),
                of=chosen,
                limits=limits,
                shape=shape,
                asymmetric=asymmetric,
            )
        return endpoint.endpoint_id, keys

    return on_database(settings, verb)


def create_queue(
    settings: Settings,
    account: str,
    queue_id: str,
    name: str,
    of: Filter = Filter(),  # noqa: B008  (frozen)
    events: Sequence[str] = (),
    shape: str = "workers_ai",
) -> UUID:
    """Register a queue, whose events are fetched; returns its id."""
    chosen = _known(settings, of)

    async def verb(conn: Connection) -> UUID:
        async with conn.transaction():
            tenant_id = await tenants.ensure_tenant(conn, account)
            values: dict[str, Any] = {"name": name, "queue_id": queue_id, "of": chosen, "shape": shape}
            kinds = list(events) or known_kinds(shape, USUAL_KINDS)
            return (await endpoints.create_queue(conn, tenant_id=tenant_id, kinds=kinds, **values)).endpoint_id

    return on_database(settings, verb)


def _known(settings: Settings, of: Filter) -> Filter:
    """The filter with its model by its own name. Raises Failure."""
    known = catalogue.load(settings.models_file).resolve(of.model or "")
    if of.model is not None and known is None:
        raise Failure(f"No such model {of.model}.", "`slackwater model list` shows them.")
    return replace(of, model=known.name if known else None)


async def _checked_url(settings: Settings, conn: Connection, account: str, url: str) -> endpoints.CheckedUrl:
    """The URL, found fit. Raises Failure before an account is made for it."""
    try:
        hosts = await endpoints.allowed_hosts(conn, await tenants.find_tenant(conn, account))
    except NotFound:
        hosts = None
    try:
        async with Egress.of(settings) as egress:
            return await endpoints.checked_url(egress, url, hosts)
    except BadInput as refusal:
        local = (
            "For a receiver on this machine set SLACKWATER_WEBHOOK_ALLOW_PRIVATE=true; `slackwater up` runs with it."
        )
        raise Failure(refusal.message, "" if settings.webhook_allow_private else local) from refusal


def show_all(settings: Settings, account: str, console: Console) -> None:
    """Print the webhooks of an account."""

    async def verb(conn: Connection, tenant_id: int) -> list[Endpoint]:
        found, _ = await endpoints.listing(conn, tenant_id, per_page=100)
        return found

    table = Table(Column("id", no_wrap=True), "name", "to", "model", Column("events", no_wrap=True), "format", "state")
    for endpoint in _of_account(settings, account, verb):
        state = f"{endpoint.state}: {endpoint.reason}" if endpoint.reason else endpoint.state
        cells = (
            endpoint.endpoint_id.hex,
            endpoint.name,
            endpoint.url or f"fetched as {endpoint.queue_id}",
            endpoint.model or "all",
            "\n".join(endpoint.kinds),
        )
        table.add_row(*map(plain, (*cells, endpoint.format, state)))
    console.print(table)


def delete(settings: Settings, account: str, subscription_id: UUID) -> None:
    """Remove a webhook with its pending deliveries."""

    async def verb(conn: Connection, tenant_id: int) -> None:
        await endpoints.delete(conn, tenant_id, subscription_id)

    _of_account(settings, account, verb)


def switch(settings: Settings, account: str, subscription_id: UUID, verb: endpoints.Switch) -> str:
    """Pause, disable or enable a webhook. Returns its state then."""

    async def call(conn: Connection, tenant_id: int) -> str:
        async with conn.transaction():
            return (await endpoints.switch(conn, tenant_id, account, subscription_id, verb)).state

    return _of_account(settings, account, call)


def rotate(settings: Settings, account: str, subscription_id: UUID, overlap_hours: float) -> str:
    """Change the signing key; the old one signs too for so long. Returns the new one, readable this once."""

    async def verb(conn: Connection, tenant_id: int) -> str:
        _, keys = await endpoints.rotate_secret(
            conn,
            key=secret_key(settings),
            tenant_id=tenant_id,
            endpoint_id=subscription_id,
            secret=None,
            overlap_seconds=overlap_hours * 3600,
        )
        return keys.secret

    return _of_account(settings, account, verb)


def test(settings: Settings, account: str, subscription_id: UUID, console: Console) -> None:
    """Send a test event and print what became of it. Raises Failure if it was not delivered."""

    async def begin(conn: Connection, tenant_id: int) -> int:
        return await deliveries.send_test(conn, tenant_id, account, subscription_id)

    async def look(conn: Connection, tenant_id: int) -> Delivery:
        found, _ = await deliveries.show(conn, tenant_id, subscription_id, delivery_id)
        return found

    delivery_id = _of_account(settings, account, begin)
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while (found := _of_account(settings, account, look)).last is None:
        if clock.monotonic() > deadline:
            raise Failure(
                f"Nobody has sent it within {PATIENCE_SECONDS:.0f} s.",
                "Is a notifier running? `slackwater up` has one.",
            )
        time.sleep(0.2)
    if found.state != DeliveryState.DELIVERED:
        remedy = "It is tried again; `slackwater subscription deliveries` shows how it goes."
        raise Failure(f"Not delivered: {_outcome(found.last)}.", remedy)
    console.print(f"delivered in {found.last.duration_ms} ms: {_outcome(found.last)}", highlight=False)


def show_deliveries(
    settings: Settings, account: str, subscription_id: UUID, console: Console, *, state: str | None, limit: int
) -> None:
    """Print the newest deliveries of a webhook."""

    async def verb(conn: Connection, tenant_id: int) -> list[Delivery]:
        return await deliveries.listing(conn, tenant_id, subscription_id, state=state, limit=limit)

    table = Table(Column("delivery", no_wrap=True), "event", "request id", "state", "attempts", "last attempt", "next")
    for each in _of_account(settings, account, verb):
        waits = _moment(each.next_attempt_at) if each.next_attempt_at and each.state == DeliveryState.PENDING else "–"
        cells = (each.delivery_id, each.kind, each.request_id, each.state, each.attempts, _outcome(each.last), waits)
        table.add_row(*map(plain, cells))
    console.print(table)


def show_delivery(settings: Settings, account: str, subscription_id: UUID, delivery_id: int, console: Console) -> None:
    """Print one delivery with every attempt and what the receiver answered."""

    async def verb(conn: Connection, tenant_id: int) -> tuple[Delivery, list[Attempt]]:
        return await deliveries.show(conn, tenant_id, subscription_id, delivery_id)

    found, attempts = _of_account(settings, account, verb)
    console.print(plain(f"{found.webhook_id}  {found.kind}  {found.request_id}  {found.state}"), soft_wrap=True)
    table = Table("attempt", "at", "ms", "outcome", "address", "answer")
    for attempt in attempts:
        body = (attempt.body or b"").decode(errors="replace")[:200]
        cells = (
            attempt.n,
            _moment(attempt.started_at),
            attempt.duration_ms,
            _outcome(attempt),
            attempt.address or "–",
            body,
        )
        table.add_row(*map(plain, cells))
    console.print(table)


def redeliver(settings: Settings, account: str, subscription_id: UUID, delivery_id: int) -> None:
    """Send one delivery again, whatever became of it."""

    async def verb(conn: Connection, tenant_id: int) -> None:
        await deliveries.redeliver(conn, tenant_id, subscription_id, delivery_id)

    _of_account(settings, account, verb)


def replay(
    settings: Settings,
    account: str,
    subscription_id: UUID,
    since: datetime,
    until: datetime | None,
    *,
    everything: bool,
) -> int:
    """Send what happened in a time again, without `everything` only what was not accepted. Returns how many events."""
    begin, end = since.astimezone(), until.astimezone() if until else clock.now()

    async def verb(conn: Connection, tenant_id: int) -> int:
        return await deliveries.replay(
            conn, tenant_id, subscription_id, since=begin, until=end, only_failed=not everything
        )

    return _of_account(settings, account, verb)


def _of_account(settings: Settings, account: str, verb: Callable[[Connection, int], Awaitable[Answer]]) -> Answer:
    """The answer of one verb for an account. Raises Failure."""

    async def call(conn: Connection) -> Answer:
        return await verb(conn, await tenants.find_tenant(conn, account))

    try:
        return on_database(settings, call)
    except Failure as failure:
        if isinstance(failure.__cause__, NotFound):
            remedy = "`slackwater subscription list` and `… deliveries ID` show what there is."
            raise Failure(failure.problem, failure.remedy or remedy) from failure
        raise


def _outcome(attempt: Attempt | None) -> str:
    if attempt is None:
        return "none yet"
    return " ".join(str(part) for part in (attempt.http_status, attempt.error) if part is not None)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
