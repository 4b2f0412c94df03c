"""The expected length of answers to requests that set no limit, learned from earlier answers.

Every estimate of work uses it: the charge in the fair order, the size of chunks, forecasts, and a key's tokens per minute.
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
from app.queue import forecast_sql as queries

FRESH_SECONDS = 30.0
RECENT_BATCHES = 200  # per model
SAMPLE = 50  # answers of each batch
PRIOR_ANSWERS = 16  # the assumed length weighs as much as this many answers

UsualLength = Callable[[Model], int]


@dataclass(frozen=True, slots=True)
class AnswerTotals:
    """A number of answers, and their tokens in total."""

    answers: int = 0
    tokens: int = 0

    def __add__(self, other: "AnswerTotals") -> "AnswerTotals":
        return AnswerTotals(self.answers + other.answers, self.tokens + other.tokens)

    def mean(self, prior: float) -> float:
        """The mean length. With few answers it stays near the `prior`."""
        return (PRIOR_ANSWERS * prior + self.tokens) / (PRIOR_ANSWERS + self.answers)


@dataclass(frozen=True, slots=True)
class LearnedLengths:
    """Totals read at one moment: by model, and by model and account."""

    models: dict[str, AnswerTotals] = field(default_factory=dict)
    accounts: dict[tuple[str, int], AnswerTotals] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[tuple[str, int, int, int]]) -> "LearnedLengths":
        """From rows of model, tenant, answers, tokens."""
        learned = cls()
        for model, tenant_id, answers, tokens in rows:
            totals = learned.accounts[model, tenant_id] = AnswerTotals(answers, tokens)
            learned.models[model] = learned.models.get(model, AnswerTotals()) + totals
        return learned

    def usual(self, tenant_id: int, model: Model) -> int:
        """Expected tokens of an answer. An account with few answers gets the model's mean; a model with few, its default."""
        model_mean = self.models.get(model.name, AnswerTotals()).mean(model.default_max_tokens)
        mean = self.accounts.get((model.name, tenant_id), AnswerTotals()).mean(model_mean)
        return max(1, min(ceil(mean), model.context_window))


async def read_lengths(conn: Connection, models: Sequence[str]) -> LearnedLengths:
    """Read the answer lengths of the latest batches of these models."""
    values = {"models": list(models), "recent": RECENT_BATCHES}
    return LearnedLengths.of(await (await conn.execute(queries.ANSWER_LENGTHS, values)).fetchall())


async def read_samples(
    conn: Connection, tenant_ids: Sequence[int], models: Sequence[str]
) -> list[tuple[int, list[int]]]:
    """By line, the lengths of some answers of the latest batches of these accounts and models."""
    values = {"tenant_ids": list(tenant_ids), "models": list(models), "recent": RECENT_BATCHES, "sample": SAMPLE}
    rows = await (await conn.execute(queries.ANSWER_SAMPLES, values)).fetchall()
    return [(line_id, lengths) for line_id, lengths in rows]


class AnswerLengths:
    """One process's copy of the learned lengths. It is refreshed in the background."""

    def __init__(self, database: Database, models: Sequence[str]) -> None:
        self._database = database
        self._models = models
        self._learned = LearnedLengths()
        self._refreshed_at: float | None = None
        self._refresh: asyncio.Task[None] | None = None

    def of(self, tenant_id: int) -> UsualLength:
        """The expected length by model, for this account. Never waits; if the copy is old, a later call sees the new one."""
        now = clock.monotonic()
        if self._refreshed_at is None or now - self._refreshed_at > FRESH_SECONDS:
            self._refreshed_at = now
            self._refresh = asyncio.create_task(self.learn())
        lengths = self._learned
        return lambda model: lengths.usual(tenant_id, model)

    async def learn(self) -> None:
        """Refresh now. While the database does not answer, the old lengths stay valid."""
        with suppress(*TRANSIENT):
            async with self._database.relaxed() as conn:
                self._learned = await read_lengths(conn, self._models)
