"""Cuts the items of a reopened batch that run again: by the model and the line with which they were queued."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from app.budgets import service as budgets
from app.budgets.rules import estimated
from app.budgets.service import Look
from app.db.pool import Connection
from app.engines.catalogue import Catalogue, Model
from app.engines.service import ensure_pool
from app.errors import ModelUnknown
from app.metering import lines
from app.queue.batch_state import ItemModel, Items, Reopened
from app.queue.chunking import NewChunk, cut
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Part:
    """The chunks of one model, and the budgets by which they were cut."""

    pool_id: int
    chunks: Sequence[NewChunk]
    look: Look


async def cut_again(
    conn: Connection, settings: Settings, catalogue: Catalogue, batch: Reopened, items: Mapping[ItemModel, Items]
) -> list[Part]:
    """Cut the items, by model. Call in the transaction that reopened the batch. Raises ModelUnknown."""
    return [await _part(conn, settings, catalogue, batch, of, *found) for of, found in items.items()]


async def _part(
    conn: Connection,
    settings: Settings,
    catalogue: Catalogue,
    batch: Reopened,
    of: ItemModel,
    seqs: Sequence[int],
    est_tokens: Sequence[int],
) -> Part:
    model = catalogue.resolve(of.name or batch.model)
    if model is None:
        raise ModelUnknown(f"The batch's model {of.name or batch.model} is no longer in the catalogue")
    tokens, items = settings.chunk_tokens, settings.chunk_items
    line_id = await _line_of(conn, batch, of, model)
    look = await budgets.look(conn, [line_id])
    under = look.of_line.get(line_id)
    sizes = estimated(est_tokens, model.context_window, open_ended=batch.open_ended)
    amounts = under.queued_amounts(sizes, model.context_window) if under else None
    cut_up = partial(cut, max_tokens=tokens, max_items=items, seqs=seqs, line_id=line_id, amounts=amounts)
    chunks = await asyncio.to_thread(cut_up, est_tokens)
    return Part(await ensure_pool(conn, model.served), chunks, look)


async def _line_of(conn: Connection, batch: Reopened, of: ItemModel, model: Model) -> int | None:
    """The line of the batch's items with this model, which has the price at which they were queued.

    Where none is known, it has the price of this moment.
    """
    if of.line_id is not None or of.name is None:
        return of.line_id or batch.line_id
    stored = await lines.parts(conn, batch.model_lines or [])
    if named := next((each for each in stored if each.parts.model == model.name), None):
        return named.line_id
    if batch.line_id is None:
        return None
    [own] = await lines.parts(conn, [batch.line_id])
    return await lines.with_model(conn, own.parts, model.name, model.price)
