"""Check a definition with a sample of its input; nothing is stored."""

import asyncio
from collections.abc import Sequence
from typing import Any

from app import crypto
from app.batches.intake.ndjson import LineSplitter
from app.batches.validation import strict_json
from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.files import sealed_files
from app.flows.items import Lineage
from app.pipelines import copying, forecast, intake, service
from app.pipelines.drafting import Order
from app.pipelines.intake import BadLine, LineNames
from app.pipelines.reading import Reader
from app.pipelines.service import Caller, Given
from app.queue.answer_lengths import UsualLength
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store

_Counted = tuple[int, list[Lineage]]  # the lines of an input that are used, and the first of them


async def of(
    database: Database, settings: Settings, caller: Caller, given: Given, catalogue: Catalogue, usual: UsualLength
) -> dict[str, Any]:
    """What a create would make. Raises BadInput, NotFound, PolicyDenied, SensitiveFound, KeysUnavailable."""
    order = await service.order_of(caller, given, catalogue, usual)
    if given.items is not None:
        lines, sample = await asyncio.to_thread(_of_items, order, given.items)
        service.check_lines(order.flow, lines, service.ITEMS)
    elif order.flow.input.file_id is not None:
        lines, sample = await _of_file(database, settings, order)
        service.check_lines(order.flow, lines, service.FILE)
    else:
        lines, sample = await _of_batch(database, settings, order)
    return await forecast.of(database, order, usual, lines, sample)


def _of_items(order: Order, items: Sequence[Any]) -> _Counted:
    """Of the lines that came with the request, which are all checked. Raises BadInput."""
    names, sample = LineNames(), list[Lineage]()
    used = items[: order.flow.limit]
    for number, item in enumerate(used):
        try:
            line = intake.named(item, names)
        except BadLine as error:
            raise intake.bad(order.admission, service.ITEMS, f"{service.ITEMS}[{number}]", f"{error}") from None
        if number < forecast.SAMPLE:
            sample.append(Lineage(line))
    return len(used), sample


async def _of_file(database: Database, settings: Settings, order: Order) -> _Counted:
    """Of the input's file, of which only the first lines are read. Raises BadInput."""
    file_id = await service.file_of(database, order.tenant, order.flow)
    lines = _FirstLines(order, int(settings.ndjson_line_mb * 2**20))
    async for block in sealed_files.stream(database, settings, order.tenant.tenant_id, file_id):
        await asyncio.to_thread(lines.add_block, block)
        if lines.full:
            break
    else:
        await asyncio.to_thread(lines.end)
    return lines.count, lines.sample


class _FirstLines:
    """Counts the lines of a file, and reads those of the sample."""

    def __init__(self, order: Order, line_bytes: int) -> None:
        self._order, self._names, self._splitter, self._number = order, LineNames(), LineSplitter(line_bytes), 0
        self.count, self.sample = 0, list[Lineage]()

    @property
    def full(self) -> bool:
        """Whether further lines are not used."""
        return self.count == self._order.flow.limit

    def add_block(self, block: bytes) -> None:
        """Add a block of the file. Raises BadInput."""
        self._add(self._splitter.feed(block))

    def end(self) -> None:
        """Add the last line, if it has no line end. Raises BadInput."""
        self._add(self._splitter.close())

    def _add(self, texts: Sequence[bytes]) -> None:
        for text in texts:
            self._number += 1
            if text.strip() and not self.full:
                self.count += 1
                if self.count <= forecast.SAMPLE:
                    self.sample.append(self._read(text))

    def _read(self, text: bytes) -> Lineage:
        try:
            return Lineage(intake.named(strict_json.loads(text), self._names))
        except (BadLine, strict_json.JsonError) as error:
            where = f"{service.FILE}: line {self._number}"
            raise intake.bad(self._order.admission, service.FILE, where, f"{error}") from None


async def _of_batch(database: Database, settings: Settings, order: Order) -> _Counted:
    """Of a batch: its items at this moment. Raises BadInput, KeysUnavailable."""
    async with database.relaxed() as conn:
        source_id, lines = await service.source_of(conn, order.tenant, order.flow)
    reader = Reader(database, Store.of(settings), Keyring.of(settings), crypto.secret_key(settings))
    sample = await copying.sample(database, reader, order.tenant, source_id, forecast.SAMPLE)
    return min(lines, order.flow.limit or lines), sample
