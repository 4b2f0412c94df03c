"""Reads items of a pipeline with what they come from, opened, so that children can be made of them. Values behind placeholders
stay there: all that an item comes from gets one mapping of them.

No transaction is open meanwhile: large bodies are in the object store, and keys are at their provider.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from app.db import byte_pages, day_tables
from app.db.pool import Database
from app.flows import rendering
from app.flows.answers import Answer
from app.flows.counting import ancestor_number
from app.flows.items import Lineage
from app.flows.reads import Reads
from app.flows.stages import INPUT, Definition, External
from app.pipelines import feeding_sql as queries
from app.pipelines.running import Running
from app.policy import vaults
from app.policy.redaction import Merging
from app.policy.vaults import NO_VALUES, Vaults
from app.queue.bodies import StoredBodies
from app.sealing.keyring import Keyring
from app.storage.store import Store

_AT_ONCE = 8  # large bodies
_PAGE = 2000  # items at most


class Row(NamedTuple):
    """An item with its result, if it has one. `asked`: it was a request. `again`: an earlier run had a result of it. `request`:
    what was asked, if it was read too. `values`: of the placeholders in both.
    """

    seq: int
    reference: str | None
    affinity: str | None
    asked: bool
    run: int | None
    ok: int | None
    body: bytes | None
    stored: bool | None
    error: str | None
    again: bool
    request: bytes | None
    request_stored: bool
    vault: bytes | None
    values: Mapping[str, str] = NO_VALUES


@dataclass(frozen=True, slots=True)
class Item:
    """An item from which children are made. `error`: the class of its error."""

    seq: int
    reference: str | None
    affinity: str | None
    error: str | None
    again: bool
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Seqs:
    """Which items are read: these, or all from `low` to `high`, which is not one of them."""

    listed: Sequence[int] | None = None
    low: int = 0
    high: int = 0


@dataclass(slots=True)
class Reader:
    """Reads for one slice. The keys of its batches are opened once."""

    database: Database
    store: Store
    keyring: Keyring
    secret: bytes
    _bodies: dict[int, StoredBodies] = field(default_factory=dict)

    async def items(self, running: Running, stage: int, seqs: Seqs, run: int, reads: Reads) -> list[Item]:
        """Items of a stage, in the order of their numbers, with what `reads` says of their ancestors. Those without a result are
        left out, unless they are lines of the input. `run`: of their marker. Raises KeysUnavailable, StorageError, NotFound.
        """
        rows = await self._rows(running, stage, seqs, run, requests=_wants_requests(stage, reads))
        return await self._below(running, stage, rows, reads)

    async def pages(self, running: Running, stage: int, high: int, reads: Reads) -> AsyncIterator[list[Item]]:
        """The items of a stage with numbers below `high`, a page at a time. See `items`."""
        seqs, requests = Seqs(high=high), _wants_requests(stage, reads)
        async for page in self._pages(running, stage, seqs, 1, requests=requests):
            yield await self._below(running, stage, page, reads)

    async def _below(self, running: Running, stage: int, rows: Mapping[int, Row], reads: Reads) -> list[Item]:
        """The items of these rows, with what `reads` says of their ancestors."""
        flow, own = running.flow, stage == INPUT
        above = await self._ancestors(running, stage, list(rows), reads)
        found = []
        for seq in sorted(rows):
            parents = {of: others.get(ancestor_number(flow, stage, seq, of)) for of, others in above.items()}
            row, others, values = _merged(flow, stage, rows[seq], parents)
            answers: dict[int, Answer] = {}
            if row.body is not None:
                answers[stage] = rendering.answer_of(flow, stage, ok=row.ok == 1, body=row.body)
            elif not own or flow.input.answers:
                continue
            line, requests = (_json(row.request) if own else None), dict[int, Mapping[str, Any]]()
            if reads.request == stage and row.asked:
                requests[stage] = _json(row.request) or {}
            for ancestor, other in others.items():
                if other is None:
                    continue
                if ancestor in reads.answers and other.body is not None:
                    answers[ancestor] = rendering.answer_of(flow, ancestor, ok=other.ok == 1, body=other.body)
                if ancestor == INPUT and reads.line:
                    line = _json(other.request)
                if ancestor == reads.request and other.asked:
                    requests[ancestor] = _json(other.request) or {}
            lineage = Lineage(line, answers, requests, values)
            found.append(Item(seq, row.reference, row.affinity, row.error, row.again, lineage))
        return found

    async def _ancestors(
        self, running: Running, stage: int, seqs: Sequence[int], reads: Reads
    ) -> dict[int, dict[int, Row]]:
        """By stage and number, the ancestors of these items that are read."""
        wanted = set(reads.answers) | ({INPUT} if reads.line else set())
        wanted |= set() if reads.request is None else {reads.request}
        found: dict[int, dict[int, Row]] = {}
        for ancestor in sorted(wanted - {stage}):
            numbers = sorted({ancestor_number(running.flow, stage, seq, ancestor) for seq in seqs})
            requests = _wants_requests(ancestor, reads)
            found[ancestor] = await self._rows(running, ancestor, Seqs(numbers), 1, requests=requests)
        return found

    async def _rows(self, running: Running, stage: int, seqs: Seqs, run: int, *, requests: bool) -> dict[int, Row]:
        if seqs.listed is None:
            pages = [page async for page in self._pages(running, stage, seqs, run, requests=requests)]
            return {seq: row for page in pages for seq, row in page.items()}
        batch_id = running.stages[stage].batch_id
        values = {"batch_id": batch_id, "run": run, "requests": requests, "seqs": list(seqs.listed)}
        async with self.database.relaxed() as conn:
            cursor = await day_tables.execute(conn, queries.READ, batch_id, values, binary=True)
            found = [Row(*row) for row in await cursor.fetchall()]
        return {row.seq: row for row in await self._opened(running, batch_id, found)}

    async def _pages(
        self, running: Running, stage: int, seqs: Seqs, run: int, *, requests: bool
    ) -> AsyncIterator[dict[int, Row]]:
        """The rows of a range."""
        batch_id, low = running.stages[stage].batch_id, seqs.low
        values = {"batch_id": batch_id, "run": run, "requests": requests, "high": seqs.high, "limit": _PAGE}
        while low < seqs.high:
            async with self.database.relaxed() as conn:
                cursor = await day_tables.execute(
                    conn, queries.READ_RANGE, batch_id, values | {"low": low}, binary=True
                )
                rows, more = await byte_pages.read(cursor, _PAGE)
            found = [Row(*row) for row in rows]
            yield {row.seq: row for row in await self._opened(running, batch_id, found)}
            low = found[-1].seq + 1 if more else seqs.high

    async def _opened(self, running: Running, batch_id: int, rows: Sequence[Row]) -> list[Row]:
        """The rows with their bodies in the clear, and the values of their placeholders."""
        if batch_id not in self._bodies:
            self._bodies[batch_id] = StoredBodies(self.database, self.keyring, batch_id)
        rows = await self._fetched(rows)
        bodies, found, safe = self._bodies[batch_id], list[Row](), Vaults(self.secret, running.tenant_id)
        for row in rows:
            body, request, values = row.body, row.request, NO_VALUES
            if body is not None:
                body = await bodies.result(row.seq, row.run or 0, body, ok=row.ok == 1)
            if request is not None:
                request = await bodies.payload(row.seq, request)
            if row.vault is not None:
                vault = await bodies.vault(row.seq, row.vault)
                values = safe.opened(vault, vaults.of_item(batch_id, row.seq))
            found.append(row._replace(body=body, request=request, values=values))
        return found

    async def _fetched(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows with what lies in the object store."""
        if not any(row.stored or (row.request is not None and row.request_stored) for row in rows):
            return rows
        limit = asyncio.Semaphore(_AT_ONCE)

        async def fetched(row: Row) -> Row:
            async with limit:
                if row.stored and row.body is not None:
                    row = row._replace(body=await self.store.get(row.body.decode()), stored=False)
                if row.request is not None and row.request_stored:
                    row = row._replace(request=await self.store.get(row.request.decode()), request_stored=False)
            return row

        return await asyncio.gather(*map(fetched, rows))


def _merged(
    flow: Definition, stage: int, row: Row, others: Mapping[int, Row | None]
) -> tuple[Row, Mapping[int, Row | None], Mapping[str, str]]:
    """A row and those of its ancestors, by stage, with one mapping of placeholders."""
    if not row.values and not any(other.values for other in others.values() if other):
        return row, others, NO_VALUES
    merging = Merging()

    def renamed(of: int, each: Row) -> Row:
        outside = of != INPUT and isinstance(flow.stage(of).work, External)
        body, request = each.body, each.request
        if body is not None:
            body = merging.body(body, each.values, of_engine=not outside)
        if request is not None:
            request = merging.body(request, each.values, of_engine=not outside and of != INPUT)
        return each._replace(body=body, request=request)

    row = renamed(stage, row)
    return row, {of: other and renamed(of, other) for of, other in others.items()}, merging.values


def _wants_requests(stage: int, reads: Reads) -> bool:
    """Whether what was asked is read of the items of this stage; of the input, its lines."""
    return (stage == INPUT and reads.line) or reads.request == stage


def _json(body: bytes | None) -> dict[str, Any] | None:
    if body is None:
        return None
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
