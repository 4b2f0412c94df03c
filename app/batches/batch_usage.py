"""The lines of batches, and the usage of their results: between the queue, which counts, and the ledger."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from app.db.pool import Connection, Database
from app.engines.catalogue import Model
from app.metering import ledger, lines
from app.metering.ledger import Booking
from app.metering.lines import Lines, parts_of, unlabelled
from app.metering.spend_labels import SpendLabels
from app.queue.settling import UsageSum
from app.tenants.service import Tenant

_LINES: WeakKeyDictionary[Database, Lines] = WeakKeyDictionary()  # of each database that this process uses


async def line_ids(
    database: Database, tenant: Tenant, labels: SpendLabels, kind: str, models: Sequence[Model]
) -> list[int]:
    """The line of each model's items in a batch with these labels."""
    wanted = [parts_of(tenant.tenant_id, tenant.key_id, labels, model.name, kind, model.price) for model in models]
    return await _LINES.setdefault(database, Lines()).ids(database, wanted)


async def book(conn: Connection, used: Sequence[UsageSum]) -> None:
    """Book what results used. Call inside the transaction that counted them."""
    bookings = []
    for each in used:
        line_id = each.line_id
        if line_id is None:
            assert each.tenant_id is not None
            [line_id] = await lines.added(conn, [unlabelled(each.tenant_id, each.model or "", each.kind or "")])
            assert line_id is not None
        counts = each.requests, each.ok, each.prompt, each.cached, each.output
        again = each.repeats, each.retried, each.retried_ok, each.yields
        bookings.append(Booking(each.hour, line_id, *counts, *again))
    await ledger.book(conn, bookings)
