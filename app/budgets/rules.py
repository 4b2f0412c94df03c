"""Budgets and their arithmetic, and the size of what they reserve. Pure.

An amount of a budget is in its unit: 10^-9 of its currency, or tokens. It never reserves more than is free:

    spent + reserved <= max

So it overspends only by what requests cost beyond what is reserved for them. What is reserved for chunks that no worker has yet
is tentative: who can start at once takes it back. People are shown it as available. A chunk takes at most LARGEST of a budget,
and processes keep at most the rest for synchronous requests, so each chunk fits into a new window once what was reserved in
the last one has returned.

The most that a request can use is a token of its prompt for each byte, and the longest answer, within the context window. With
`reserve = "maximum"` all of that is reserved, else what it is expected to use: its estimated prompt, and of an answer without a
limit, which could use the rest of the context window, at most what 95 of 100 answers of the workflow, task and model have used.
Until that is learned, it is three times the answer length that was learned for the account and the model, or the model's
default: if lengths fall off exponentially, 95 of 100 answers are shorter.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from itertools import repeat
from math import ceil
from operator import add, sub

from app import clock
from app.errors import BadInput, BudgetSpent
from app.metering import money
from app.metering.money import TokenPrice
from app.quantities import many, moment
from app.queue.chunking import ItemAmounts

UNLIMITED = 2**62
LARGEST = (9, 10)
LEAST_PER_MILLE, MOST_PER_MILLE = 50, 1000
LONG_ANSWERS = 3  # times the learned length
_MARGIN = 1.25
_LEARNED_TOKENS = 10_000  # that results may have used at most, before the share that they did use is believed
SPENT = 100  # per cent
RETRY_SECONDS = 3  # after which work that runs may have returned money
_CHUNKS = 10  # that fit into a window of each budget, unless an item alone is larger
_FREE = TokenPrice(0, 0, 0)
_BYTES_PER_TOKEN = 4
_REMEDY = "shorten it, lower its max_tokens, or raise the budget"


class Scope(StrEnum):
    """What a budget limits: an account, one of its keys, or one of its workflows."""

    ACCOUNT = "account"
    KEY = "key"
    WORKFLOW = "workflow"


class Owner(StrEnum):
    """Who has set a budget. The operator may change every budget; an account changes only its own."""

    OPERATOR = "operator"
    ACCOUNT = "account"


class Unit(StrEnum):
    """What a budget counts."""

    COST = "cost"
    TOKENS = "tokens"


class Queued(StrEnum):
    """What queued work does at the limit: go on, wait for the next window, or be refused at its submit."""

    ALERT = "alert"
    WAIT = "wait"
    REFUSE = "refuse"


class Synchronous(StrEnum):
    """What synchronous requests do at the limit."""

    ALERT = "alert"
    REFUSE = "refuse"


class Reserve(StrEnum):
    """What is reserved for work before it runs: what it is expected to use, or the most that it can."""

    EXPECTED = "expected"
    MAXIMUM = "maximum"


@dataclass(frozen=True, slots=True)
class BudgetTerms:
    """What its owner has set. `alerts_at`: per cent at which an event is written. `queued`, `synchronous`: what happens
    at the limit.
    """

    name: str
    scope: Scope
    scope_value: str
    unit: Unit
    currency: str | None
    period: str
    tz: str
    max: int
    alerts_at: tuple[int, ...] = ()
    queued: Queued = Queued.WAIT
    synchronous: Synchronous = Synchronous.REFUSE
    reserve: Reserve = Reserve.EXPECTED

    @property
    def counts(self) -> tuple[Unit, str | None]:
        """What its amounts are of: tokens, or cost in a currency."""
        return self.unit, self.currency

    def covers(self, key_id: str, workflow: str) -> bool:
        """Whether it counts requests of this key and workflow; `sql` says the same of stored lines."""
        match self.scope:
            case Scope.KEY:
                return self.scope_value == key_id
            case Scope.WORKFLOW:
                return self.scope_value == workflow
        return True

    def limits(self, *, queued: bool) -> bool:
        """Whether it does more than alert at its limit, for queued work or for synchronous requests."""
        return self.queued != Queued.ALERT if queued else self.synchronous != Synchronous.ALERT

    @property
    def reserves_maximum(self) -> bool:
        """Whether all that work can use is reserved for it."""
        return self.reserve == Reserve.MAXIMUM


@dataclass(frozen=True, slots=True)
class Budget(BudgetTerms):
    """A stored budget in its present window. `notified`: per cent up to which alerts were written.

    `spent_in`: the begin of the window in which it was written that its money has ended. `diverted_to`: the models that work was
    moved to. `learned_*`: what the results of about a day have used, the most that they could have, and that in tokens.
    `tentative`: the part of `reserved` that is for chunks which no worker has yet; 0 where it was not read.
    """

    budget_id: int = 0
    tenant_id: int = 0
    spent: int = 0
    reserved: int = 0
    window_from: datetime | None = None
    window_to: datetime | None = None
    notified: int = 0
    spent_in: datetime | None = None
    diverted_to: tuple[str, ...] = ()
    learned_used: float = 0.0
    learned_maximum: float = 0.0
    learned_tokens: float = 0.0
    owner: Owner = Owner.ACCOUNT
    tentative: int = 0

    def changed_by(self, by: Owner) -> bool:
        """Whether they may change and remove it: an operator may with what an account has set, and not the other way round."""
        return by in (self.owner, Owner.OPERATOR)

    @property
    def spent_noted(self) -> bool:
        """Whether it was written in this window that its money has ended."""
        return self.spent_in is not None and self.spent_in == self.window_from

    @property
    def at_limit(self) -> bool:
        """Whether this window's money has ended: all of it is spent, or the rest was too small for the work that waited."""
        return self.spent >= self.max or self.spent_noted

    @property
    def renewed(self) -> bool:
        """Whether its money had ended, as was written, and a window has begun since."""
        return self.spent_in is not None and self.spent_in != self.window_from

    @property
    def free(self) -> int:
        """What can be reserved, without taking anything back."""
        return self.max - self.spent - self.reserved

    @property
    def begun(self) -> int:
        """What is reserved for running work and calls to come: chunks of workers, results that are not counted yet, and calls."""
        return self.reserved - self.tentative

    @property
    def available(self) -> int:
        """What work that starts now can have."""
        return self.free + self.tentative

    @property
    def largest(self) -> int:
        """The most that is reserved for one chunk."""
        return largest(self.max)

    @property
    def percent(self) -> int:
        """The spent share of max, in per cent, rounded down."""
        return self.spent * 100 // self.max

    @property
    def per_mille(self) -> int:
        """The share of the most that its queued work can use which is reserved: 1.25 times what results used of it, or all
        until that is known.
        """
        if self.reserves_maximum or self.learned_tokens < _LEARNED_TOKENS or not self.learned_maximum:
            return MOST_PER_MILLE
        ratio = self.learned_used / self.learned_maximum
        return min(MOST_PER_MILLE, max(LEAST_PER_MILLE, ceil(ratio * _MARGIN * 1000)))

    def of(self, cost: int, tokens: int) -> int:
        """The amount in its unit."""
        return cost if self.unit == Unit.COST else tokens

    def shown(self, amount: int) -> str:
        """An amount of this budget, for a person."""
        return money.shown(amount, self.currency or "USD") if self.unit == Unit.COST else many(amount, "token")

    def of_max(self, amount: int) -> str:
        """An amount of this budget beside its maximum: $4.20 of $5.00; 990 of 1,000 tokens."""
        return f"{self.shown(amount).removesuffix(' tokens')} of {self.shown(self.max)}"

    @property
    def taken(self) -> str:
        """What is spent and what is reserved, for a person. Processes reserve for calls in advance, so that nothing need run."""
        spent = f"{self.of_max(self.spent)} spent"
        return f"{spent}, {self.shown(self.begun)} reserved for running work and calls to come" if self.begun else spent


TERMS = tuple(field.name for field in fields(BudgetTerms))
COLUMNS = tuple(field.name for field in fields(Budget))[:-1]  # without `tentative`, which is added up from chunks


def largest(most: int) -> int:
    """The most that a budget with this maximum reserves for one chunk."""
    times, of = LARGEST
    return max(1, most * times // of)


def most_for_calls(most: int) -> int:
    """What processes reserve together at most of a budget with this maximum, unless a request needs more."""
    return max(0, most - largest(most))


def per_mille(budgets: Iterable[Budget]) -> int:
    """The share of the most that work under these budgets can use which all of them reserve."""
    return max((budget.per_mille for budget in budgets), default=MOST_PER_MILLE)


def least(budgets: Iterable[Budget], unit: Unit, amount: Callable[[Budget], int]) -> int | None:
    """The least amount of the budgets of this unit. None: there is none, so nothing limits it."""
    return min((amount(budget) for budget in budgets if budget.unit == unit), default=None)


def spent_share(budgets: Iterable[Budget], key_id: str, workflow: str, currency: str | None, *, queued: bool) -> float:
    """Per cent that is spent of the fullest of an account's budgets that count and limit such work; `sql` says the same of stored
    lines. `currency`: of its price; None: its model has none.
    """
    mine = (each for each in budgets if each.covers(key_id, workflow) and each.limits(queued=queued))
    counting = (each for each in mine if each.unit == Unit.TOKENS or each.currency == currency)
    return max((budget.spent * 100 / budget.max for budget in counting), default=0.0)


def crossed(budget: Budget) -> list[int]:
    """The thresholds, in per cent, that the spent share has reached and of which no event was written in this window."""
    alerts = [at for at in budget.alerts_at if budget.notified < at <= budget.percent]
    return [*alerts, SPENT] if budget.percent >= SPENT and not budget.spent_noted else alerts


def windows_needed(budget: Budget, cost: int, tokens: int, items: int | None = None) -> int:
    """How many windows beyond the present one work needs that will use so much, with what is reserved for chunks before it that
    no worker has yet. 0: it fits into the present one. `items`: how many it has, if each window has room for one at least.
    """
    over = budget.of(cost, tokens) - max(0, budget.available)
    windows = -(-over // budget.max) if over > 0 else 0
    return windows if items is None else min(windows, items)


def refusal(budget: Budget, needed: int, now: datetime) -> BudgetSpent:
    """Why a request that needs so much is refused. If only what others have reserved keeps it, another try may help soon; if it
    needs more than the maximum, none ever does.
    """
    if needed > budget.max:
        sizes = f"This may use {budget.shown(needed)}, and the maximum of budget {budget.name!r} is {budget.shown(budget.max)}"
        return BudgetSpent(f"{sizes}; {_REMEDY}")
    if needed <= budget.max - budget.spent:
        message = f"Budget {budget.name!r} has too little available: {budget.taken}; try again soon"
        return BudgetSpent(message, retry_after=RETRY_SECONDS, again=True)
    return _until_renewed(budget, f"and this may use {budget.shown(needed)}", now)


def refusal_of_new(budget: Budget, now: datetime) -> BudgetSpent:
    """Why new work is refused by a budget at its limit."""
    return _until_renewed(budget, "and the rest is too small for the work that waits", now)


def _until_renewed(budget: Budget, too_little: str, now: datetime) -> BudgetSpent:
    used = f"{budget.of_max(budget.spent)} spent"
    said = f"Budget {budget.name!r} is used up: {used}"
    if budget.spent < budget.max:
        said = f"Budget {budget.name!r} has too little left: {used}, {too_little}"
    if budget.window_to is None:
        return BudgetSpent(f"{said}; it is not renewed; raise it")
    seconds = max(1, ceil((budget.window_to - now).total_seconds()))
    return BudgetSpent(f"{said}; it is renewed on {moment(budget.window_to)}", retry_after=seconds)


# ---------------------------------------------------------------- the size of what is reserved


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


def expected_answer(answer: int, most: int, long_answer: int | None = None) -> int:
    """The tokens that an answer is expected to have at most. `answer`: its usual length; `most`: its limit; `long_answer`: what
    95 of 100 answers do not exceed, if that is known.
    """
    return min(most, long_answer or LONG_ANSWERS * answer) if 0 < answer < most else most


@dataclass(frozen=True, slots=True)
class LineBudgets:
    """The budgets that pay for a line, and the price of its tokens. `price` None: its model has none.

    A budget of money pays only for lines with a price in its currency. `long_answer`: tokens that 95 of 100 of its answers
    without a limit do not exceed; None: not known yet.
    """

    line_id: int
    tenant_id: int
    budgets: tuple[Budget, ...]
    price: TokenPrice | None
    long_answer: int | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        """Of the budgets, in ascending order."""
        return tuple(budget.budget_id for budget in self.budgets)

    def amounts(
        self, sizes: ItemSizes, context_window: int, seqs: Sequence[int] | None = None, *, waits: bool = True
    ) -> ItemAmounts:
        """What new items can cost. `seqs`: their places in the batch, if they are not 0, 1, 2, … `waits`: they may wait for the
        next window of a budget. Raises BadInput for an item that no window has the money for; BudgetSpent where they may not wait
        and what is spent leaves too little.
        """
        found = self._amounts(sizes, context_window)
        for budget in self.budgets:
            expected = found.expected_cost if budget.unit == Unit.COST else found.expected_tokens
            if expected and max(expected) > budget.largest:
                place = next(i for i, amount in enumerate(expected) if amount > budget.largest)
                raise BadInput(_too_large(budget, seqs[place] if seqs else place, expected[place]))
            if not waits and sum(expected) > budget.max - budget.spent:
                raise refusal(budget, sum(expected), clock.now())
        return found

    def queued_amounts(self, sizes: ItemSizes, context_window: int) -> ItemAmounts:
        """The same for items that were accepted before. None is larger than a budget takes."""
        return self._amounts(sizes, context_window, clamp=True)

    def _amounts(self, sizes: ItemSizes, context_window: int, *, clamp: bool = False) -> ItemAmounts:
        price, whole = self.price or _FREE, any(budget.reserves_maximum for budget in self.budgets)
        prompts = [max(0, tokens) for tokens in map(sub, sizes.est_tokens, sizes.answer_tokens)]
        most, answers = list(sizes.most_tokens), list(sizes.most_tokens)
        shared = most if price.output >= price.input else repeat(0)
        columns = zip(prompts, sizes.body_bytes, shared, most, strict=False)
        widest = [
            max(prompt, _prompt(size, answer, longest, context_window)) for prompt, size, answer, longest in columns
        ]
        if sizes.answer_tokens != sizes.most_tokens:  # else every answer has its limit
            pairs = zip(sizes.answer_tokens, most, strict=True)
            answers = [expected_answer(answer, longest, self.long_answer) for answer, longest in pairs]
        cost, tokens = money.costs(widest, most, price), list(map(add, widest, most))
        expected = (cost, tokens)
        if not whole:
            expected = money.costs(prompts, answers, price), list(map(add, prompts, answers))
        if clamp:
            expected = self._within(expected[0], Unit.COST), self._within(expected[1], Unit.TOKENS)
        shares = (least(self.budgets, unit, lambda budget: budget.max // _CHUNKS) for unit in (Unit.COST, Unit.TOKENS))
        return ItemAmounts(self.ids, cost, tokens, *expected, *shares)

    def _within(self, amounts: list[int], unit: Unit) -> list[int]:
        most = least(self.budgets, unit, lambda budget: budget.largest)
        return amounts if most is None else [min(amount, most) for amount in amounts]


def _prompt(size: int, answer: int, longest: int, context_window: int) -> int:
    """The most tokens that a prompt of so many bytes can have beside this answer. Each of several texts without answers, like
    those of an embedding, has a window of its own; answers that are longer than a window are several.
    """
    room = context_window - answer
    return size if not longest else min(size, room if room > 0 else context_window)


def _too_large(budget: Budget, item: int, amount: int) -> str:
    return (
        f"requests[{item}]: may use {budget.shown(amount)}, more than {budget.shown(budget.largest)}, the most "
        f"that budget {budget.name!r} ({budget.shown(budget.max)} a {budget.period}) reserves for one item; {_REMEDY}"
    )
