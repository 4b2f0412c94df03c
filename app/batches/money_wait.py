"""What a batch waits for when its chunks are unfunded: a budget, and how many of its windows the work before it needs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from math import inf
from operator import attrgetter

from app import clock
from app.batches.why_text import batch_message
from app.db.pool import Database
from app.metering import budget_rules, budgets, lanes
from app.metering.budget_rules import Budget
from app.quantities import many, moment
from app.queue import funding
from app.queue.estimate import Confidence, Estimate, Missing
from app.queue.funding import Unfunded


@dataclass(frozen=True, slots=True)
class MoneyWait:
    """The budget that a batch waits for. `windows`: how many have to begin before all of its work is paid."""

    budget: Budget
    windows: int
    now: datetime

    @property
    def seconds(self) -> float | None:
        """Seconds until the last of these windows begins. None: the budget is not renewed."""
        if not self.windows:
            return 0.0
        begin, end = self.budget.window_from, self.budget.window_to
        if begin is None or end is None:
            return None
        return (end - self.now).total_seconds() + (self.windows - 1) * (end - begin).total_seconds()

    @property
    def is_over(self) -> bool:
        """Whether the rest of this window is not enough, also if everything that is held comes back."""
        return self.windows > 0 and self.budget.spent_noted

    def delayed(self, estimate: Estimate) -> Estimate:
        """The estimate with the wait for money: the work is done in equal parts, one in each window."""
        wait, eta = self.seconds, estimate.eta_seconds
        if wait is None:
            missing = estimate.missing or Missing.MONEY
            return replace(estimate, eta_seconds=None, confidence=Confidence.NONE, missing=missing)
        if eta is None or not self.windows:
            return estimate
        return replace(estimate, eta_seconds=max(eta, wait + eta / (self.windows + 1)), confidence=Confidence.LOW)

    def message(self, unfunded: int) -> str:
        """The sentence for `why`."""
        budget = self.budget
        never = "; it is never renewed, so raise its maximum"
        often = f", and the batch takes {self.windows:,} windows" if self.windows > 1 else ""
        until = f"; it renews {moment(budget.window_to)}{often}" if budget.window_to else never
        chunks = many(unfunded, "chunk") + (" waits" if unfunded == 1 else " wait")
        used = budget.of_max(budget.spent + budget.held)
        return batch_message("budget", name=budget.name, used=used, chunks=chunks, until=until)


async def read(database: Database, batch_id: int) -> MoneyWait | None:
    """The budget for which a batch waits longest: first one that is never renewed. None: its chunks are being funded."""
    waits: list[MoneyWait] = []
    async with database.relaxed() as conn:
        for lane_id, before in groupby(await funding.before(conn, batch_id), attrgetter("lane_id")):
            budget_ids, learned = await lanes.find(conn, lane_id)
            found = await budgets.of_ids(conn, budget_ids)
            strict = any(budget.strict for budget in found)
            cost, tokens = _held(list(before), budget_rules.per_mille(learned, strict=strict), strict=strict)
            for budget in found:
                needed = budget_rules.windows_needed([budget], cost, tokens)
                waits.append(MoneyWait(budget, needed, clock.now()))
    return max(waits, key=_length, default=None)


def _held(work: Sequence[Unfunded], per_mille: int, *, strict: bool) -> tuple[int, int]:
    """What will be held for this work: cost and tokens."""
    shares = [1000 if strict else min(per_mille, part.likely) for part in work]
    cost = sum(part.cost * share for part, share in zip(work, shares, strict=True))
    return cost // 1000, sum(part.tokens * share for part, share in zip(work, shares, strict=True)) // 1000


def _length(wait: MoneyWait) -> tuple[float, int]:
    """The order of waits: by their end; then by the share of the budget that is free, the least last."""
    seconds = inf if wait.seconds is None else wait.seconds
    return seconds, -wait.budget.free * 1000 // wait.budget.max
