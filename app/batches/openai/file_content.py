"""The content of a file: an uploaded file unchanged; an output or error file, made from results while it is read."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from zlib import crc32

from app.batches.openai import file_batches, result_lines
from app.batches.restoring import Restorer
from app.batches.withholding import OnWithheld, unnoted, withholder
from app.db.pool import Database
from app.engines.catalogue import Catalogue, Price
from app.files import sealed_files
from app.files import service as files
from app.files.service import File
from app.queue import reads
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.storage.store import Store
from app.tenants.service import Tenant

_PAGE = 500  # results


@dataclass(frozen=True, slots=True)
class FileContent:
    """`blocks(n)`: the content without its first n lines; `part(n, m)`: m bytes after the first n. `complete`: it is final.
    `run`: the run of its batch. `tag`: its strong entity tag; None: it still grows.
    """

    blocks: Callable[[int], AsyncIterator[bytes]]
    part: Callable[[int, int], AsyncIterator[bytes]]
    complete: bool = True
    run: int | None = None
    tag: str | None = None

    async def size(self, skip: int = 0) -> int:
        """The size in bytes, without the first `skip` lines. The whole content is made to count it."""
        return sum([len(block) async for block in self.blocks(skip)])


async def of(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    tenant: Tenant,
    file: File,
    restoring: Restorer | None = None,
    on_withheld: OnWithheld = unnoted,
) -> FileContent:
    """The content of a file of the tenant. The files of a running batch grow at their ends. `restoring`: its placeholders.
    `on_withheld`: see `withholding`.
    """
    store, keyring = Store.of(settings), Keyring.of(settings)
    if file.request_id is None:
        stored = partial(sealed_files.stream, database, settings, tenant.tenant_id, file.file_id)
        return FileContent(lambda skip: _without(stored(), skip), lambda *part: stored(part), tag=_tag(file))
    batch = await file_batches.get(database, tenant, file.request_id)
    status = batch.status
    assert status is not None
    withholding = withholder(status.policy, batch.request_id, on_withheld)

    def price_of(name: str | None) -> Price | None:
        model = catalogue.resolve(name or status.model)
        return model.price_of(status.work, status.created_at) if model else None

    def blocks(skip: int) -> AsyncIterator[bytes]:
        vaults, items = restoring is not None, withholding is not None and withholding.needs_items
        pages = reads.results(
            database,
            status.batch_id,
            status.run,
            store=store,
            keyring=keyring,
            page=_PAGE,
            items=items,
            vaults=vaults,
        )
        if restoring is not None:
            pages = restoring.pages(status.batch_id, pages)
        if withholding is not None:
            pages = withholding.pages(pages, with_items=False)
        of_errors = bool(file.of_errors)
        return result_lines.lines(
            batch.request_id,
            status.state,
            pages,
            of_errors=of_errors,
            price_of=price_of,
            numbered=not batch.input_file_id,
            skip=skip,
        )

    def part(start: int, length: int) -> AsyncIterator[bytes]:
        return _cut(blocks(0), start, length)

    final = status.finalized_at is not None
    tag = _tag(file, status.run, price_of(None), restoring is not None) if final else None
    return FileContent(blocks, part, final, status.run, tag)


def _tag(file: File, *more: object) -> str:
    """The entity tag of a final content. `more`: what else is seen in it, beside what was stored."""
    return f'"{file.file_id.hex}-{file.rewrites}{f"-{crc32(repr(more).encode()):08x}" if more else ""}"'


async def size_of(
    database: Database,
    settings: Settings,
    catalogue: Catalogue,
    tenant: Tenant,
    file: File,
    restoring: Restorer | None = None,
) -> int:
    """The size of a file in bytes. It is counted once for a final batch, and each time where values are restored."""
    if known_size(file, restoring) is not None:
        return file.bytes or 0
    contents = await of(database, settings, catalogue, tenant, file, restoring)
    size = await contents.size()
    if restoring is None and contents.complete and contents.run is not None:
        await files.save_size(database, tenant.tenant_id, file, contents.run, size)
    return size


def known_size(file: File, restoring: Restorer | None) -> int | None:
    """The stored size of a file in bytes. None: it has to be counted."""
    return file.bytes if restoring is None or file.request_id is None else None


async def _without(blocks: AsyncIterator[bytes], skip: int) -> AsyncIterator[bytes]:
    """The blocks after the first `skip` lines."""
    async for block in blocks:
        ends, start = block.count(b"\n"), 0
        if skip and ends < skip:
            skip -= ends
            continue
        while skip:
            start = block.index(b"\n", start) + 1
            skip -= 1
        if start < len(block):
            yield block[start:]


async def _cut(blocks: AsyncIterator[bytes], start: int, length: int) -> AsyncIterator[bytes]:
    """`length` bytes from `start`."""
    async for block in blocks:
        part = block[start : start + length]
        start = max(0, start - len(block))
        if part:
            yield part
            length -= len(part)
        if not length:
            return
