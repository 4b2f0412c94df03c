"""The chunks of a submit: its items cut by model, each chunk with its line of the ledger."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from app import crypto
from app.batches import batch_usage
from app.batches.intake.spool import Spool
from app.budgets import service as budgets
from app.budgets.rules import ItemSizes, LineBudgets
from app.budgets.service import Look
from app.db.pool import Database
from app.engines.catalogue import Model
from app.metering import families
from app.metering.families import NONE
from app.metering.lines import MIXED, LineParts, parts_of
from app.metering.spend_labels import SpendLabels
from app.queue.chunking import NewChunk, cut
from app.queue.types import Kind
from app.settings import Settings
from app.tenants.service import Tenant

_NO_BEGINNING = ""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose items they are: account and key, labels, kind of batch, and the engine's route of most items."""

    tenant: Tenant
    labels: SpendLabels
    kind: str
    endpoint: str


@dataclass(frozen=True, slots=True)
class LinedChunks:
    """The chunks of a batch with their lines, by model; the line of each model; and the budgets by which they were cut."""

    by_model: Sequence[Sequence[NewChunk]]
    line_ids: Sequence[int]
    look: Look

    def by_pool(self, pools: Sequence[int]) -> dict[int, list[NewChunk]]:
        """The chunks by pool. `pools`: of each model."""
        found: dict[int, list[NewChunk]] = {}
        for pool_id, part in zip(pools, self.by_model, strict=True):
            found.setdefault(pool_id, []).extend(part)
        return found

    def ready(self, served: Sequence[str]) -> dict[str, int]:
        """How many chunks workers may claim at once, by the model as engines serve it. Those under budgets wait for money.

        `served`: of each model.
        """
        found: Counter[str] = Counter()
        for name, part in zip(served, self.by_model, strict=True):
            found[name] += sum(chunk.most is None for chunk in part)
        return dict(+found)


async def lined(
    database: Database, settings: Settings, owner: Owner, intake: Spool, models: Sequence[Model]
) -> LinedChunks:
    """The chunks of a batch of these models, under the budgets of this moment. Raises BadInput, BudgetSpent."""
    lines = await asyncio.to_thread(BatchLines, intake, settings, owner)
    own = await asyncio.to_thread(lines.own, models)
    known = await batch_usage.line_ids(database, own)
    async with database.relaxed() as conn:
        look = await budgets.look(conn, list(known.values()))
    look.accept()
    of_models = [look.of_line.get(known[line]) for line in own]
    cut_up = partial(chunks_by_model, waits=owner.kind != Kind.FLEX)  # the caller of a flex call waits for its answer
    cuts = await asyncio.to_thread(cut_up, intake, settings, models, of_models)
    of_chunks = await asyncio.to_thread(lines.of, models, cuts)
    known |= await batch_usage.line_ids(database, list(chain.from_iterable(of_chunks)))
    by_model = [
        [replace(chunk, line_id=known[line]) for chunk, line in zip(chunks, part, strict=True)]
        for chunks, part in zip(cuts, of_chunks, strict=True)
    ]
    return LinedChunks(by_model, [known[line] for line in own], look)


def chunks_by_model(
    intake: Spool,
    settings: Settings,
    models: Sequence[Model],
    budgets_of: Sequence[LineBudgets | None],
    *,
    waits: bool = True,
) -> list[list[NewChunk]]:
    """The chunks of each model of the intake, in the order of its models. Items without a model are those of the first.

    `budgets_of`: those of each model's items; None: none applies to them. `waits`: they may wait for money. Raises BadInput,
    BudgetSpent.
    """
    cut_up = partial(cut, max_tokens=settings.chunk_tokens, max_items=settings.chunk_items)
    sizes = ItemSizes(intake.est_tokens, intake.answer_tokens, intake.most_tokens, intake.body_bytes)
    if len(models) < 2:
        [under] = budgets_of
        amounts = under.amounts(sizes, models[0].context_window, waits=waits) if under else None
        return [cut_up(intake.est_tokens, keys=intake.warm_keys, amounts=amounts)]
    chunks = []
    for place, (model, under) in enumerate(zip(models, budgets_of, strict=True)):
        seqs = [seq for seq, index in enumerate(intake.model_of) if index == place]
        estimates, keys = [intake.est_tokens[seq] for seq in seqs], [intake.warm_keys[seq] for seq in seqs]
        amounts = under.amounts(sizes.of(seqs), model.context_window, seqs, waits=waits) if under else None
        chunks.append(cut_up(estimates, keys=keys, seqs=seqs, amounts=amounts))
    return chunks


class BatchLines:
    """The lines of a batch: `own` of each model's items as a whole, which a retry uses, and `of` each chunk."""

    def __init__(self, intake: Spool, settings: Settings, owner: Owner) -> None:
        self._owner = owner
        self._portions = _Portions(intake, owner, families.of(crypto.secret_key(settings)))

    def own(self, models: Sequence[Model]) -> list[LineParts]:
        """By model."""
        return [self._line(model, self._portions.of_all) for model in models]

    def of(self, models: Sequence[Model], cuts: Sequence[Sequence[NewChunk]]) -> list[list[LineParts]]:
        """By model, of each of its chunks."""
        return [
            [self._line(model, self._portions.of(chunk)) for chunk in part]
            for model, part in zip(models, cuts, strict=True)
        ]

    def _line(self, model: Model, portion: tuple[str, str]) -> LineParts:
        family, endpoint = portion
        owner = self._owner
        labels = replace(owner.labels, family=family)
        return parts_of(
            owner.tenant.tenant_id, owner.tenant.key_id, labels, model.name, owner.kind, model.price, endpoint
        )


class _Portions:
    """The prompt family and the endpoint of chunks. `mixed`: several in one chunk. A label names the family of all."""

    def __init__(self, intake: Spool, owner: Owner, known: families.Families) -> None:
        self._intake = intake
        self._owner = owner
        self._families = known
        self._beginnings = list(intake.beginnings)
        self._names: dict[int, str] = {}
        self._counts: Counter[int] | None = None

    @property
    def of_all(self) -> tuple[str, str]:
        """Family and endpoint of the batch as a whole."""
        return self._named(set(self._intake.beginning_of), set(self._intake.endpoint_of))

    def of(self, chunk: NewChunk) -> tuple[str, str]:
        """Family and endpoint of a chunk."""
        begin, route = self._intake.beginning_of, self._intake.endpoint_of
        if chunk.seqs is None:
            items = slice(chunk.lo, chunk.hi + 1)
            return self._named(set(begin[items]), set(route[items]))
        return self._named({begin[seq] for seq in chunk.seqs}, {route[seq] for seq in chunk.seqs})

    def _named(self, beginnings: set[int], endpoints: set[int]) -> tuple[str, str]:
        endpoint = self._intake.endpoints[next(iter(endpoints))] if len(endpoints) == 1 else MIXED
        return self._family(beginnings), endpoint or self._owner.endpoint

    def _family(self, beginnings: set[int]) -> str:
        if self._owner.labels.family != NONE:
            return self._owner.labels.family
        found = beginnings - {self._intake.beginnings.get(_NO_BEGINNING)}
        if len(found) > 1 or -1 in found:
            return MIXED
        return self._name(next(iter(found))) if found else NONE

    def _name(self, index: int) -> str:
        if index not in self._names:
            if self._counts is None:
                self._counts = Counter(self._intake.beginning_of)
            whose = self._owner.tenant.tenant_id, self._owner.labels.workflow
            self._names[index] = self._families.name(*whose, self._beginnings[index], self._counts[index])
        return self._names[index]
