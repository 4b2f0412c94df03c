"""What each duty does. Every one may be ended at any point and done again: it goes on with what is left.

One that returns has done all of it. What others kept it from, it says by raising HeldUp, once it has done the rest.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

import structlog

from app.batches import accounts as batch_accounts
from app.batches import long_answers
from app.changes import service as changes
from app.clock import now
from app.engines import service as engine_rows
from app.files import service as files
from app.files import upload_parts
from app.headroom import decision_log
from app.headroom import samples as engine_samples
from app.metering import latency, lines, reports, sessions
from app.metering import ledger as ledger_rows
from app.policy import samples
from app.queue import order_drift, partitions, retention, shredding
from app.sealing.keyring import Keyring
from app.sentences import ended
from app.sessions import retention as conversation_retention
from app.storage import late_removal
from app.storage.store import Store
from workers.maintenance.work import HeldUp, Work

log = structlog.get_logger("maintenance")


def _require_done(left: Sequence[str]) -> None:
    """Raise HeldUp if others have locked something, so that it is left."""
    if left:
        raise HeldUp(ended(f"Locks of others kept this from being done: {', '.join(left)}"))


async def fair_order(work: Work) -> None:
    """Count anew what the fair order remembers."""
    async with work.database.relaxed() as conn:
        recount = await order_drift.recompute(conn)
    for drift in recount.drifts:
        log.error(
            "cache.drift", pool=drift.pool_id, tenant=drift.tenant_id, ready=drift.ready, tokens=drift.inflight_tokens
        )
    _require_done([f"account {tenant_id} in pool {pool_id}" for pool_id, tenant_id in recount.left])


async def ledger(work: Work) -> None:
    """Compare ledger and queue."""
    async with work.database.relaxed() as conn:
        differences = await reports.check(conn)
        await ledger_rows.note_check(conn, sum(abs(each.ledger - each.queue) for each in differences))
        await ledger_rows.forget_writers(conn)
    for each in differences:
        log.error("ledger.differs", account=each.account_id, count=each.count, ledger=each.ledger, queue=each.queue)


async def usage(work: Work) -> None:
    """Add up the usage of old days, a day at a time, and remove lines without any."""
    async with work.database.relaxed() as conn:
        await sessions.forget_old(conn)
    kept = True
    while kept:
        async with work.database.transaction() as conn:
            kept = await ledger_rows.keep(conn, now())
    async with work.database.transaction() as conn:
        await lines.remove_unused(conn)


async def lengths(work: Work) -> None:
    """Learn how long answers without a limit are."""
    await long_answers.learn(work.database)


async def history(work: Work) -> None:
    """Shorten the history of engines, latencies, requests and changes."""
    async with work.database.relaxed() as conn:
        await engine_samples.fold(conn)
        await latency.forget_old(conn)
        await samples.forget_old(conn)
        await changes.prune(conn)


async def engines(work: Work) -> None:
    """Forget engines that are gone, some at a time."""
    while True:
        async with work.database.transaction() as conn:
            forgotten = await engine_rows.forget_old(conn)
            await decision_log.forget(conn, forgotten)
        if not forgotten:
            break
        log.info("engines.forgotten", engines=len(forgotten))
    async with work.database.relaxed() as conn:
        left = await engine_rows.gone(conn)
    _require_done([f"{left} engines"] if left else [])


async def conversations(work: Work) -> None:
    """Delete old conversations."""
    left = await conversation_retention.run(work.database, work.settings.retention_days)
    _require_done([f"{left} conversations"] if left else [])


async def freeze(work: Work) -> None:
    """Vacuum the tables of the last days."""
    async with work.database.durable() as conn:
        frozen = await partitions.freeze(conn)
        left = await partitions.to_freeze(conn) if frozen else []
    if frozen:
        log.info("partitions.frozen", names=frozen)
    if left:
        raise HeldUp(ended(f"The server has not vacuumed these tables; look at their owner: {', '.join(left)}"))


async def objects(work: Work) -> None:
    """Remove files and uploads whose time is over, and objects that nobody needs."""
    store, grace = await work.store(), work.settings.object_grace_days
    expired = await files.expire(work.database, store, grace) + await upload_parts.expire(work.database, store)
    if expired:
        log.info("files.expired", files=expired)
    if swept := await files.sweep(work.database, store, grace):
        log.warning("objects.orphaned", objects=swept)
    await late_removal.sweep(work.database, store)


async def shredded(work: Work) -> None:
    """Remove the objects of batches whose contents were deleted."""
    if found := await shredding.sweep(work.database, await work.store()):
        log.info("batches.shredded", batches=found)


async def days(work: Work) -> None:
    """Drop the days whose retention is over."""
    store, settings = await work.store(), work.settings
    outcome = await retention.run(work.direct_url, settings.retention_days, store, settings.object_grace_days)
    for day, count in outcome.dropped.items():
        log.info("day.dropped", day=str(day), batches=count)
    _require_done(outcome.left)


async def accounts(work: Work) -> None:
    """Delete what closed accounts have."""
    store, keyring = Store.of(work.settings), Keyring.of(work.settings)
    await batch_accounts.sweep(work.database, store, keyring)


async def audit_sign(work: Work) -> None:
    """Sign the chains of the audit log that are due."""
    await work.audit.sign()


async def audit_cut(work: Work) -> None:
    """Cut what is too old off the audit log."""
    await work.audit.cut()


async def audit_verify(work: Work) -> None:
    """Check the whole audit log."""
    await work.audit.verify()


BY_NAME: Mapping[str, Callable[[Work], Awaitable[None]]] = {
    each.__name__: each
    for each in (
        fair_order,
        ledger,
        usage,
        lengths,
        history,
        engines,
        conversations,
        freeze,
        objects,
        shredded,
        days,
        accounts,
        audit_sign,
        audit_cut,
        audit_verify,
    )
}
