"""Moves waiting work that is not critical to a cheaper model, where a budget has reached the share for it.

Only the leading steward calls this. Lock order: batch, budget, chunk.
"""

import asyncio
from collections.abc import Sequence

import structlog

from app.batches import budget_events
from app.db.pool import Connection
from app.engines.catalogue import Catalogue, Model
from app.engines.model_registry import with_adopted
from app.engines.service import ensure_pool
from app.metering import budgets, lines
from app.metering.budget_rules import Budget
from app.metering.lines import LineParts, StoredLine
from app.metering.money import TokenPrice
from app.policy import language, queued, service
from app.policy.problems import PolicyError
from app.policy.queued import QueuedWork
from app.policy.rules import Rule
from app.queue import funding, settling
from app.queue.funding import Diversion, Waiting
from app.queue.types import Kind
from app.tenants import service as tenants

_NOT_KNOWN = {"workflow": (lines.OTHER,), "task": (lines.OTHER,), "endpoint": ("-", lines.MIXED)}
_log = structlog.get_logger("steward")


async def divert(conn: Connection, where: Waiting, budget_ids: Sequence[int], catalogue: Catalogue) -> int:
    """Move what waits in a lane and pool, at most what is funded at once. Returns the number of chunks.

    Call inside a transaction that has locked nothing yet. Work that a rule of the policy keeps from the fallback stays.
    """
    if not any(budget.diverts for budget in await budgets.of_ids(conn, budget_ids)):
        return 0
    models = await with_adopted(conn, catalogue)
    rules = await _rules(conn, models)
    if rules is None:
        return 0
    await settling.exclusively(conn)  # it locks many batches, too
    batch_ids = await funding.lock_batches(conn, where)
    due = [budget for budget in await budgets.locked(conn, budget_ids) if budget.diverts]
    moved = 0
    for budget in due[:1]:
        account = await tenants.account_id_of(conn, budget.tenant_id)
        for line in await lines.parts(conn, await funding.waiting_lines(conn, where)):
            model = fallback(models, line.parts, budget.fallback, rules, account)
            moved += await _move_to(conn, where, batch_ids, budget, line, model) if model else 0
    return moved


async def _rules(conn: Connection, models: Catalogue) -> tuple[Rule, ...] | None:
    """The rules of the policy in force. None: this process does not understand them."""
    found = await service.newest(conn)
    try:
        return await asyncio.to_thread(language.parse, found.text, models, lenient=True) if found else ()
    except PolicyError:
        _log.exception("policy.not_read")
        return None


def fallback(
    catalogue: Catalogue, line: LineParts, names: Sequence[str], rules: Sequence[Rule], account: str
) -> Model | None:
    """The first model of a fallback list that can do what this line's model does, and may answer its work. Pure.

    None: the work is critical, is no batch, already has a model of the list, or none fits.
    """
    now = catalogue.resolve(line.model)
    if now is None or line.critical or line.kind != Kind.BATCH:
        return None
    listed = [model for name in names if (model := catalogue.resolve(name)) is not None]
    if now in listed:
        return None
    known = {name: None if getattr(line, name) in vague else getattr(line, name) for name, vague in _NOT_KNOWN.items()}
    work = QueuedWork(account, line.key_id or None, kind=line.kind, critical=False, model=line.model, **known)
    return next((model for model in listed if _fits(model, now) and queued.lets(rules, work, model.name)), None)


def _fits(model: Model, now: Model) -> bool:
    alike = model.task == now.task and model.shape == now.shape
    return alike and model.capabilities >= now.capabilities and {*model.media_hosts} >= {*now.media_hosts}


async def _move_to(
    conn: Connection, where: Waiting, batch_ids: Sequence[int], budget: Budget, line: StoredLine, model: Model
) -> int:
    """Give the line's waiting chunks this model, and write the event. Returns the number of chunks."""
    price = TokenPrice.of(model.price, f"price of {model.name}") if model.price else None
    to_line = await lines.with_model(conn, line.parts, model.name, model.price)
    to_pool = await ensure_pool(conn, model.served)
    dearest = max(price.input, price.output) if price else 0
    diversion = Diversion(where, line.line_id, model.name, model.context_window, to_pool, to_line, dearest)
    chunks, items = await funding.divert(conn, diversion, batch_ids)
    if items:
        await budget_events.diverted(conn, budget, items, model.name)
    return chunks
