"""The results of one stage as lines of JSON, in the order of their numbers; also while it runs."""

from collections.abc import AsyncIterator

import orjson

from app.batches.intake import ndjson
from app.batches.restoring import Restorer
from app.batches.withholding import OnWithheld, withholder
from app.db.pool import Database
from app.engines.catalogue import Catalogue
from app.engines.pricing import priced
from app.pipelines.reads import StageSight
from app.queue import reads
from app.queue.reads import ItemResult
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store

_PAGE = 500


async def lines(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    stage: StageSight,
    *,
    after: int,
    restoring: Restorer | None,
    on_withheld: OnWithheld,
) -> AsyncIterator[bytes]:
    """The items of a stage that have a result, with numbers above `after`.

    Of a stage that runs, items with smaller numbers may get theirs later. Raises KeysUnavailable.
    """
    status = stage.status
    withholding = withholder(status.policy, status.request_id, on_withheld)
    pages = reads.results(
        database,
        status.batch_id,
        status.run,
        store=Store.of(settings),
        keyring=Keyring.of(settings),
        after=after + 1,
        page=_PAGE,
        items=withholding is not None and withholding.needs_items,
        vaults=restoring is not None,
    )
    if restoring is not None:
        pages = restoring.pages(status.batch_id, pages)
    if withholding is not None:
        pages = withholding.pages(pages, with_items=False)
    async for page in pages:
        block = b"".join(_line(item, stage, catalogue) for item in page if item.body is not None)
        if block:
            yield ndjson.unbroken(block)


def _line(item: ItemResult, stage: StageSight, catalogue: Catalogue) -> bytes:
    """One result with its line end. The answer is what the engine, or whoever was asked outside, has sent."""
    assert item.body is not None
    head = b'{"seq":%d,"custom_id":%b,"stage":%b' % (
        item.seq,
        orjson.dumps(item.reference),
        orjson.dumps(stage.row.name),
    )
    if not item.ok:
        return head + b',"ok":false,"answer":null,"error":' + item.body + b"}\n"
    model = catalogue.resolve(item.model or stage.status.model) if stage.status.endpoint else None
    answer = priced(item.body, model.price) if model and item.prompt_tokens else item.body
    return head + b',"ok":true,"answer":' + answer + b',"error":null}\n'
