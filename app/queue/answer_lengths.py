"""How long answers are that set no limit of their own, learned from what was answered. Needed wherever work is estimated
before it is done: the fair order's charge, the size of chunks, forecasts, a key's tokens a minute.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil

from app import clock
from app.db.pool import Connection, Database
from app.db.transient_errors import TRANSIENT
from app.engines.catalogue import Model
from app.queue import sql

FRESH_SECONDS = 30.0
RECENT_BATCHES = 200  # of each model
PRIOR_ANSWERS = 16  # what is assumed weighs as much as so many answers

Usual = Callable[[Model], int]


@dataclass(frozen=True, slots=True)
class Sum:
    """Answers, and the tokens that they had together."""

    answers: int = 0
    tokens: int = 0

    def __add__(self, other: "Sum") -> "Sum":
        return Sum(self.answers + other.answers, self.tokens + other.tokens)

    def mean(self, prior: float) -> float:
        """The mean length; of few answers it is near the `prior`."""
        return (PRIOR_ANSWERS * prior + self.tokens) / (PRIOR_ANSWERS + self.answers)


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned at one moment: by model, and by model and account."""

    models: dict[str, Sum] = field(default_factory=dict)
    accounts: dict[tuple[str, int], Sum] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[tuple[str, int, int, int]]) -> "Learned":
        """From rows of model, tenant, answers, tokens."""
        learned = cls()
        for model, tenant_id, answers, tokens in rows:
            found = learned.accounts[model, tenant_id] = Sum(answers, tokens)
            learned.models[model] = learned.models.get(model, Sum()) + found
        return learned

    def usual(self, tenant_id: int, model: Model) -> int:
        """Tokens of an answer. Where little is known of the account the model's mean counts, before that the model's default."""
        of_all = self.models.get(model.name, Sum()).mean(model.default_max_tokens)
        mean = self.accounts.get((model.name, tenant_id), Sum()).mean(of_all)
        return max(1, min(ceil(mean), model.context_window))


async def learned(conn: Connection, models: Sequence[str]) -> Learned:
    """Read what the last batches of these models were answered."""
    values = {"models": list(models), "recent": RECENT_BATCHES}
    return Learned.of(await (await conn.execute(sql.ANSWER_LENGTHS, values)).fetchall())


class AnswerLengths:
    """One process's knowledge, which renews itself behind whoever asks."""

    def __init__(self, database: Database, models: Sequence[str]) -> None:
        self._database = database
        self._models = models
        self._learned = Learned()
        self._asked_at: float | None = None
        self._asking: asyncio.Task[None] | None = None

    def of(self, tenant_id: int) -> Usual:
        """The usual length by model, for this account. Does not wait: a change is known at one of the next calls."""
        now = clock.monotonic()
        if self._asked_at is None or now - self._asked_at > FRESH_SECONDS:
            self._asked_at = now
            self._asking = asyncio.create_task(self.learn())
        known = self._learned
        return lambda model: known.usual(tenant_id, model)

    async def learn(self) -> None:
        """Look now. While the database is away, what was known goes on counting."""
        with suppress(*TRANSIENT):
            async with self._database.relaxed() as conn:
                self._learned = await learned(conn, self._models)
