"""Writes a month of a made-up company into the ledger of an empty installation: `python -m testing.fakes.ledger_month`.

docs/worked-month.md reads it. October 2026 of the account `acme`, whose teams are workflows:

    search    synchronous answers to customers; from the 19th on, prompts are longer
    support   synchronous drafts of replies
    tagging   a nightly batch; from the 19th on, most of it is answered by a smaller model
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

from app import settings as configuration
from app.db.pool import Connection, Database
from app.engines import catalogue
from app.engines.catalogue import Catalogue
from app.metering import ledger, lines, sketch
from app.metering.ledger import Booking
from app.metering.lines import SYNC, parts_of
from app.metering.spend_labels import SpendLabels
from app.policy import samples
from app.policy.samples import Sample
from app.queue.types import Kind
from app.tenants import service as tenants
from app.usage_counts import UsageCounts

ACCOUNT = "acme"
CHAT, LARGE, SMALL = "@cf/moonshotai/kimi-k2.6", "@cf/openai/gpt-oss-120b", "@cf/openai/gpt-oss-20b"
BEGIN, DAYS = datetime(2026, 10, 1, tzinfo=UTC), 31
CHANGE = datetime(2026, 10, 19, tzinfo=UTC)
_CHAT = "/v1/chat/completions"
Usage = tuple[str, str, str, UsageCounts, int]  # workflow, kind, model, counts, milliseconds to the first token


def usage_of(day: datetime) -> Iterator[Usage]:
    """What the company uses on a day. On weekends, callers send a quarter."""
    share = 0.25 if day.weekday() >= 5 else 1.0
    changed = day >= CHANGE
    searches, replies = round(18_000 * share), round(2_400 * share)
    prompt = 2_900 if changed else 1_200  # someone added ten examples to the instructions, after the user's words
    cached = 0.10 if changed else 0.55  # so the prefix cache no longer has them
    yield "search", SYNC, CHAT, _counts(searches, prompt, cached, 160), 260
    yield "support", SYNC, CHAT, _counts(replies, 1_800, 0.40, 420), 310
    items, moved = 40_000, 30_000 if changed else 0
    yield "tagging", Kind.BATCH, LARGE, _counts(items - moved, 700, 0.60, 60, engine_ms=55), 0
    if moved:
        yield "tagging", Kind.BATCH, SMALL, _counts(moved, 700, 0.60, 60, engine_ms=20), 0


def _counts(requests: int, prompt: int, cached: float, output: int, engine_ms: int = 0) -> UsageCounts:
    tokens = prompt * requests
    failed = requests // 2000
    counts = UsageCounts(requests, requests - failed, tokens, round(tokens * cached), output * requests)
    counts.engine_ms = engine_ms * requests
    return counts


async def write(conn: Connection, models: Catalogue) -> None:
    """Write the month. Call inside a transaction."""
    tenant_id = await tenants.ensure_tenant(conn, ACCOUNT)
    bookings = []
    for number in range(DAYS):
        day = BEGIN + timedelta(days=number)
        for workflow, kind, name, counts, first_ms in usage_of(day):
            model = models.resolve(name)
            assert model is not None
            labels = SpendLabels(workflow, critical=workflow != "tagging")
            parts = parts_of(tenant_id, "", labels, model.name, kind, model.price, _CHAT)
            [line_id] = await lines.added(conn, [parts])
            assert line_id is not None
            times = bytes([sketch.bucket(first_ms)]) * min(200, counts.ok) if first_ms else b""
            bookings.append(Booking(day + timedelta(hours=12), line_id, counts, times, b""))
    await ledger.book(conn, bookings)
    # Samples are of the last days, since nobody tries a policy on older ones.
    searches = partial(Sample, tenant_id, "", "search", "-", True, SYNC, CHAT, _CHAT, None)
    await samples.store(conn, [searches(requests=14_000, est_tokens=3_060, answer_tokens=160)])
    await samples.store(conn, [searches(requests=4_000, est_tokens=560, answer_tokens=160)])


async def _main() -> None:
    settings = configuration.load()
    async with Database.of(settings, "example") as database, database.transaction() as conn:
        await write(conn, catalogue.load(settings.models_file))


if __name__ == "__main__":
    asyncio.run(_main())
