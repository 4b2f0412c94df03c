"""The lines of batches, and the usage of their results: between the queue, which counts, and the ledger."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from app.db.pool import Connection, Database
from app.metering import ledger, lines
from app.metering.ledger import Booking
from app.metering.lines import LineParts, Lines, unlabelled
from app.queue.settling import UsageSum

_LINES: WeakKeyDictionary[Database, Lines] = WeakKeyDictionary()  # of each database that this process uses


async def line_ids(database: Database, wanted: Sequence[LineParts]) -> dict[LineParts, int]:
    """The ids of these lines of one account, which are added if they are new."""
    distinct = list(dict.fromkeys(wanted))
    ids = await _LINES.setdefault(database, Lines()).ids(database, distinct)
    return dict(zip(distinct, ids, strict=True))


async def book(conn: Connection, used: Sequence[UsageSum]) -> None:
    """Book what results used. Call inside the transaction that counted them."""
    bookings = []
    for each in used:
        line_id = each.line_id
        if line_id is None:
            assert each.tenant_id is not None
            [line_id] = await lines.added(conn, [unlabelled(each.tenant_id, each.model or "", each.kind or "")])
            assert line_id is not None
        bookings.append(Booking(each.hour, line_id, each.counts, each.first_tokens, each.durations))
    await ledger.book(conn, bookings)
