"""The most that the items of a batch under budgets can cost, from their sizes. Pure.

The hold of a strict budget takes all of it: one prompt token for each byte, and the longest answer. Without `strict` the prompt
is estimated. An answer without a limit could use the rest of the context window; of it, a hold takes at most what 95 of 100
answers of the workflow, task and model have used. Until that is learned, it takes three times the answer length that was learned
for the account and the model, or the model's default: if lengths fall off exponentially, 95 of 100 answers are shorter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import add, sub

from app.errors import BadInput, BudgetSpent
from app.metering import budget_rules, money
from app.metering.budget_rules import Funding, Unit, WhenSpent
from app.metering.money import TokenPrice
from app.queue.chunking import ItemWorsts

LIKELY = 3  # times the learned length
_CHUNKS = 10  # that fit into a window of each budget, unless an item alone is larger
_FREE = TokenPrice(0, 0, 0)
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ItemSizes:
    """By item: estimated tokens, the answer's part of them, the longest answer, and the bytes of the body."""

    est_tokens: Sequence[int]
    answer_tokens: Sequence[int]
    most_tokens: Sequence[int]
    body_bytes: Sequence[int]

    def of(self, seqs: Sequence[int]) -> "ItemSizes":
        """The sizes of these items only."""
        columns = self.est_tokens, self.answer_tokens, self.most_tokens, self.body_bytes
        return ItemSizes(*([column[seq] for seq in seqs] for column in columns))


def estimated(est_tokens: Sequence[int], context_window: int, *, open_ended: bool) -> ItemSizes:
    """Sizes of items of which only the estimate is known: each part may be all of it."""
    most = [context_window] * len(est_tokens) if open_ended else est_tokens
    return ItemSizes(est_tokens, [0] * len(est_tokens), most, [_BYTES_PER_TOKEN * tokens for tokens in est_tokens])


def worsts(funding: Funding, lane_id: int, sizes: ItemSizes, context_window: int, *, clamp: bool = False) -> ItemWorsts:
    """The most that items on this line can cost, also where no budget of money applies now: one may be set while they wait.

    `clamp`: to what one hold may take, for items that are queued already.
    """
    price = funding.price or _FREE
    prompts = _prompts(sizes, context_window, strict=funding.strict)
    most, likely = list(sizes.most_tokens), list(sizes.most_tokens)
    if not funding.strict and sizes.answer_tokens != sizes.most_tokens:  # else every answer has its limit
        likely = [
            likely_answer(answer, longest, funding.long_answer)
            for answer, longest in zip(sizes.answer_tokens, most, strict=True)
        ]
    cost, tokens = money.costs(prompts, most, price), list(map(add, prompts, most))
    exact = likely == most
    likely_cost = cost if exact else money.costs(prompts, likely, price)
    likely_tokens = tokens if exact else list(map(add, prompts, likely))
    most_cost, most_tokens = _largest(funding, Unit.COST), _largest(funding, Unit.TOKENS)
    limit_cost, limit_tokens = (most_cost, most_tokens) if clamp else (None, None)
    return ItemWorsts(
        lane_id,
        _within(cost, limit_cost),
        _within(tokens, limit_tokens),
        _within(likely_cost, limit_cost),
        _within(likely_tokens, limit_tokens),
        _share(funding, Unit.COST),
        _share(funding, Unit.TOKENS),
    )


def check(funding: Funding, found: ItemWorsts, seqs: Sequence[int] | None = None, *, waits: bool = True) -> None:
    """Raise BadInput for an item that no window of a budget has the money for, BudgetSpent where a spent budget refuses.

    `waits`: the work may wait for the next window. If not, a budget refuses it whose unspent money is not enough for it.
    """
    for budget in funding.budgets:
        if budget.when_spent == WhenSpent.REFUSE and budget.free <= 0:
            raise BudgetSpent(budget_rules.spent_message(budget))
        likely = found.likely_cost if budget.unit == Unit.COST else found.likely_tokens
        if likely and max(likely) > budget.largest:
            place = next(i for i, amount in enumerate(likely) if amount > budget.largest)
            item = seqs[place] if seqs else place
            raise BadInput(
                f"requests[{item}]: may use {budget.shown(likely[place])}, more than {budget.shown(budget.largest)}, the most "
                f"that budget {budget.name!r} ({budget.shown(budget.max)} a {budget.period}) holds for one item; "
                "shorten it, lower its max_tokens, or raise the budget"
            )
        if not waits and sum(likely) > budget.max - budget.spent:
            raise BudgetSpent(budget_rules.spent_message(budget))


def _prompts(sizes: ItemSizes, context_window: int, *, strict: bool) -> list[int]:
    if strict:
        return [min(size, context_window) for size in sizes.body_bytes]
    found = list(map(sub, sizes.est_tokens, sizes.answer_tokens))
    return found if min(found, default=0) >= 0 else [max(0, tokens) for tokens in found]


def likely_answer(answer: int, most: int, long_answer: int | None = None) -> int:
    """The tokens that an answer likely has at most. `answer`: its usual length; `most`: its limit; `long_answer`: what 95 of 100
    answers do not exceed, if that is known.
    """
    return min(most, long_answer or LIKELY * answer) if 0 < answer < most else most


def _largest(funding: Funding, unit: Unit) -> int | None:
    return min((budget.largest for budget in funding.budgets if budget.unit == unit), default=None)


def _share(funding: Funding, unit: Unit) -> int | None:
    return min((budget.max // _CHUNKS for budget in funding.budgets if budget.unit == unit), default=None)


def _within(amounts: list[int], most: int | None) -> list[int]:
    return amounts if most is None else [min(amount, most) for amount in amounts]
