"""Why a batch waits, and since when. The command `slackwater why` prints it; why_text has the sentences.

The chain of conditions between a batch and its end is checked in this order. The first one that blocks is the answer:

    its own state      paused, ending
    dependency         whether other batches must end first, or its items are still to come from another stage of its pipeline
    budget             whether all its items wait for money of a budget, and not only for an engine
    engines            whether its model has an engine, and one that is ready
    gate               whether an engine admits batch work; if not: signal, value, threshold
    sealed             whether its key could not be unwrapped
    back-off           whether all its items wait before they are tried again
    order              earlier work of its account, other accounts, the account's limit
    allowance          whether the engines' allowance is used up

A batch with items in an engine runs, at the speed of its place in the order. It does not wait for that place, nor for a gate
that is closed only for a moment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from app.batches import why_text
from app.batches.why_text import batch_message
from app.budgets import queued
from app.budgets.queued import MoneyWait
from app.coalescing import Coalescer
from app.db.pool import Database
from app.engines.adoption import DOWN
from app.engines.catalogue import Catalogue
from app.headroom.gate_rules import Reason
from app.quantities import duration, many
from app.queue import dependencies, item_counts, phases, reads
from app.queue.estimate import Estimate, Gate, Outlook, estimate
from app.queue.item_counts import ItemCounts
from app.queue.phases import Phase
from app.queue.reads import BatchSnapshot, BatchStatus
from app.sealing import batch_keys
from app.states import BatchState

KeyFailure = tuple[str, datetime]
MOMENT_SECONDS = 5.0  # a gate that is closed for less does not block a running batch: the items in the engine continue
MOST_TOGETHER = 64  # batches in one query
MOST_NAMED = 3  # batches in a message


@dataclass(frozen=True, slots=True)
class Link:
    """One link of the chain: a code, its message, since when it holds (None: unknown), and whether it blocks the batch. `met`: it
    is as it should be; else it is still ahead of the batch.
    """

    code: str
    message: str
    since: datetime | None = None
    blocks: bool = False
    met: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """The chain of one batch, and the gates of its model's engines. A final batch has an empty chain. `money`: what its
    unreserved chunks wait for.
    """

    status: BatchStatus
    chain: tuple[Link, ...]
    gates: tuple[Gate, ...]
    estimate: Estimate | None
    money: MoneyWait | None = None

    @property
    def waiting(self) -> Link | None:
        """The first link that blocks the batch; None while it runs, and at its end."""
        return next((link for link in self.chain if link.blocks), None)

    @property
    def no_eta(self) -> str | None:
        """Why the batch has no ETA. None: it has one, or has ended."""
        return None if self.estimate is None else _no_eta(self.status, self.estimate, self.money)


async def explained(database: Database, status: BatchStatus, outlook: Outlook | None) -> Why:
    """The chain from the rows that were read, and the money that its chunks wait for, if they do."""
    waits, failure, needed, phase = outlook is not None and outlook.unreserved, None, list[UUID](), None
    if status.state == BatchState.PAUSED and status.pipeline is None:
        async with database.relaxed() as conn:
            needed = await dependencies.needed(conn, status.batch_id)
    if outlook is not None and outlook.delayed:
        async with database.relaxed() as conn:
            failure = await batch_keys.failure(conn, status.batch_id)
    if outlook is not None and not outlook.gates:
        async with database.relaxed() as conn:
            phase = await phases.present(conn, status.batch_id)
    money = await queued.money_wait(database, status.batch_id) if waits else None
    return explain(status, outlook, money, failure, needed, phase)


def explain(
    status: BatchStatus,
    outlook: Outlook | None,
    money: MoneyWait | None = None,
    unreadable: KeyFailure | None = None,
    needed: Sequence[UUID] = (),
    phase: Phase | None = None,
) -> Why:
    """The chain from the rows that were read. `unreadable`: why its key could not be unwrapped, and since when. `needed`: the
    batches that must end before it starts. `phase`: what it was last seen to wait for. Pure.
    """
    if status.finalized_at is not None:
        return Why(status, (), (), None)
    expected = None if outlook is None else estimate(status.state, outlook)
    if money is not None and expected is not None:
        expected = money.delayed(expected)
    chain = tuple(walk(status, outlook, expected, money, unreadable, needed, phase))
    return Why(status, chain, outlook.gates if outlook else (), expected, money)


def walk(
    status: BatchStatus,
    outlook: Outlook | None,
    estimate: Estimate | None,
    money: MoneyWait | None = None,
    unreadable: KeyFailure | None = None,
    needed: Sequence[UUID] = (),
    phase: Phase | None = None,
) -> Iterator[Link]:
    """The chain of an unfinished batch. A batch without chunks has no outlook. `money`: of its unreserved chunks."""
    if needed:
        yield Link("dependency", batch_message("after", batches=_ends(needed)), blocks=True)
    elif status.state != BatchState.OPEN:
        yield Link(status.state, batch_message(status.state), None, blocks=True)
    if outlook is None or estimate is None or not outlook.chunks:
        code = "dependency" if status.fed else "settling"
        yield Link(code, batch_message(code), blocks=status.fed, met=not status.fed)
        return
    if money is not None and outlook.waits_for_money:
        yield Link("budget", _money_message(money, outlook), blocks=not outlook.in_order and not outlook.leased)
    yield from _engines(status, outlook, phase)
    if money is not None and money.windows and not outlook.waits_for_money:
        yield Link("budget", _money_message(money, outlook))
    yield from _own_chunks(status.items, outlook, unreadable)
    yield from _queue_order(status, outlook, estimate)
    yield _eta(status, estimate, money)


def _ends(needed: Sequence[UUID]) -> str:
    """Which batches are to end, the first few by name."""
    names = [f"batch_{each.hex}" for each in needed[:MOST_NAMED]]
    if more := len(needed) - len(names):
        names.append(f"{more} more")
    return f"{', '.join(names)} {'has' if len(needed) == 1 else 'have'} ended"


def _money_message(money: MoneyWait, outlook: Outlook) -> str:
    budget, items, until = money.budget, outlook.money_items, f"; it {money.until}" if money.until else ""
    if outlook.taken_back:
        until = f"; {many(outlook.taken_back_items, 'item')} gave it back to work that could start{until}"
    waiting = many(items, "item") + (" waits" if items == 1 else " wait")
    return batch_message("budget", name=budget.name, taken=budget.taken, items=waiting, until=until)


def _engines(status: BatchStatus, outlook: Outlook, phase: Phase | None) -> Iterator[Link]:
    """Whether there is an engine, and whether its gate is open. A batch waits since the last open gate closed."""
    alive = [gate for gate in outlook.gates if gate.alive]
    if not alive:
        message = batch_message("no_engine", model=status.model)
        yield Link("no_engine", message, _gone_since(status, outlook, phase), blocks=True)
        return
    count, serves = many(len(alive), "engine"), "serves" if len(alive) == 1 else "serve"
    message = batch_message("engines", count=count, serves=serves, model=status.model, but=_but(alive))
    yield Link("engines", message, met=outlook.served)
    blocked = not any(gate.open for gate in alive)
    moment = bool(outlook.leased) and any(
        gate.ready and _held_seconds(outlook, gate) < MOMENT_SECONDS for gate in alive
    )
    ready_last = sorted(alive, key=lambda gate: (gate.open, gate.ready, gate.since), reverse=True)
    for gate in ready_last:
        compared = gate.signal, gate.value, gate.threshold, _held_seconds(outlook, gate)
        usual = None if gate.ready else gate.usual_seconds
        soon = None if usual is None else gate.expected_seconds  # before its first start it is only a guess
        message = why_text.gate(gate.engine, gate.code, *compared, detail=gate.detail, expected=soon, usual=usual)
        since = max(gate.since, status.opened_at) if blocked else gate.since
        yield Link(
            gate.code, message, since, blocks=blocked and not moment, met=gate.open and gate.reason != Reason.FULL
        )


def _gone_since(status: BatchStatus, outlook: Outlook, phase: Phase | None) -> datetime | None:
    """Since when no engine serves a batch. Where none is known that did, its name may serve another model now."""
    if outlook.gates:
        return max(status.opened_at, *(gate.heartbeat_at for gate in outlook.gates))
    if phase is not None and phase.code == "no_engine":
        return phase.at
    return None if status.started else status.opened_at


def _but(alive: Sequence[Gate]) -> str:
    """Why none of these engines can run the batch; empty if one can."""
    if any(gate.ready and not gate.drained for gate in alive):
        return ""
    if len(alive) > 1:
        return ", but none of them can be used"
    if alive[0].drained:
        return ", but it is drained"
    if alive[0].code == "engine_starting":
        return ", but it is starting"
    return ", but it does not answer" if alive[0].reason == DOWN else ", but it is not ready"


def _held_seconds(outlook: Outlook, gate: Gate) -> float:
    return (outlook.now - gate.since).total_seconds()


def _own_chunks(items: ItemCounts, outlook: Outlook, unreadable: KeyFailure | None) -> Iterator[Link]:
    """Where the batch's items are, if a worker has some, and the chunks that wait before they are tried again."""
    if outlook.leased:
        places = item_counts.words(items.queued, items.claimed, items.in_engine, items.returns_at)
        yield Link("running", batch_message("running", places=places), met=True)
    if outlook.delayed:
        delayed, pause = many(outlook.delayed_items, "item"), duration(outlook.pause or 0.0)
        blocks = not outlook.in_order and not outlook.leased
        if unreadable is not None:
            failure, at = unreadable
            yield Link(
                "sealed", batch_message("sealed", delayed=delayed, failure=failure, pause=pause), at, blocks=blocks
            )
        else:
            yield Link("backoff", batch_message("backoff", delayed=delayed, pause=pause), None, blocks=blocks)


def _queue_order(status: BatchStatus, outlook: Outlook, estimate: Estimate) -> Iterator[Link]:
    """The work that comes before those of the batch's chunks whose turn is to come."""
    if not outlook.in_order:
        return
    waits = not outlook.leased
    since = None if status.started else status.opened_at  # nobody notes when one that has run waits again
    if outlook.inflight >= outlook.limit:
        inflight, limit = many(outlook.inflight, "token"), many(outlook.limit, "token")
        message = batch_message("account_limit", inflight=inflight, limit=limit)
        yield Link("account_limit", message, since, blocks=True)
    ahead = _batches(max(1, outlook.ahead_batches)) if estimate.position else ""
    if outlook.accounts > 1:
        behind = f", behind {ahead} of its own" if ahead else ""
        facts = {"accounts": many(outlook.accounts, "account"), "share": f"{estimate.share:.0%}", "behind": behind}
        yield Link("fair_share", batch_message("fair_share", **facts), since, blocks=waits)
    elif ahead:
        yield Link("own_batches", batch_message("own_batches", batches=ahead), since, blocks=waits)
    elif outlook.pool_inflight and outlook.suspects:
        yield Link("suspects", batch_message("suspects"), since, blocks=waits)
    elif outlook.pool_inflight and (allowed := sum(gate.allowance for gate in outlook.gates if gate.open)):
        places = many(allowed, "request")
        yield Link("allowance_spent", batch_message("allowance_spent", places=places), since, blocks=waits)
    else:
        yield Link("next", batch_message("next"), since, blocks=waits)


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _no_eta(status: BatchStatus, estimate: Estimate, money: MoneyWait | None) -> str | None:
    if estimate.missing is None:
        return None
    until = money.until if money else ""
    return why_text.no_eta(estimate.missing, status.model, state=status.state, still=estimate.still, money=until)


def _eta(status: BatchStatus, estimate: Estimate, money: MoneyWait | None) -> Link:
    if estimate.eta_seconds is None or estimate.tokens_per_second is None:
        return Link("eta_unknown", batch_message("eta_unknown", reason=_no_eta(status, estimate, money)))
    eta, pace = duration(estimate.eta_seconds), many(round(estimate.tokens_per_second), "token")
    return Link("eta", batch_message("eta", eta=eta, pace=pace, confidence=estimate.confidence))


async def without_limit(database: Database, status: BatchStatus, models: Catalogue) -> tuple[Link, ...]:
    """That items in an engine have no limit of their answers, if some have none: such items may run long."""
    model = models.resolve(status.model)
    if status.finalized_at is not None or model is None or model.task != "text-generation":
        return ()
    if not (count := await reads.unlimited(database, status.batch_id)):
        return ()
    items = f"{many(count, 'item')} {'has' if count == 1 else 'have'}"
    return (Link("no_limit", batch_message("no_limit", items=items, window=many(model.context_window, "token"))),)


class Polls:
    """The polls of one process. Polls that arrive while a query runs are answered together by the next query."""

    def __init__(self, database: Database) -> None:
        async def query(batches: list[tuple[int, UUID]]) -> Sequence[BatchSnapshot | None]:
            return await reads.snapshots(database, batches)

        self._database = database
        self._coalescer = Coalescer(query, most=MOST_TOGETHER, fails_all=True)

    async def why(self, tenant_id: int, request_id: UUID) -> Why | None:
        """The same as the function `why`. Raises the errors of the database."""
        sight = await self._coalescer.ask((tenant_id, request_id))
        return None if sight is None else await explained(self._database, *sight)
