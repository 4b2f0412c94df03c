"""The batches that benchmarks submit, and the worker processes that drain them."""

import random
import sys
from collections.abc import AsyncIterator
from time import monotonic

from app.admission.admission import no_admission
from app.batches import submit as batches
from app.db.pool import Database
from app.engines import catalogue
from app.engines.service import ensure_pool
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.service import Tenant
from benchmarks.harness import ACCOUNT, MODEL, WorkerProcesses
from benchmarks.prompts import WORDS

ITEM_BYTES = 1024
BLOCK = 64 * 1024
WORKERS = 4
_TEXTS = [" ".join(random.Random(n).choices(WORDS, k=200)) for n in range(64)]


def line(number: int) -> bytes:
    """One NDJSON item of ITEM_BYTES bytes with its line end.

    The answer is short, so that 64 items fill a chunk. No two items begin alike, so that chunks are ranges.
    """
    head = f'{{"external_reference": "item-{number}", "max_tokens": 4, "messages": [{{"role": "user", "content": "{number} '
    return (head + _TEXTS[number % 64][: ITEM_BYTES - len(head) - 5] + '"}]}\n').encode()


def body(items: int) -> bytes:
    """An NDJSON body."""
    return b"".join(line(number) for number in range(items))


class Submitter:
    """Submits NDJSON batches through app.batches.submit in this process."""

    def __init__(self, settings: Settings, database: Database, tenant: Tenant) -> None:
        self._settings, self._database = settings, database
        model = catalogue.load(settings.models_file).resolve(MODEL)
        assert model
        self._order = batches.Order(tenant, model, admission=no_admission())

    @classmethod
    async def of(cls, settings: Settings, database: Database, account: str = ACCOUNT) -> "Submitter":
        """A submitter for this account, which is created if it does not exist."""
        async with database.transaction() as conn:
            tenant = Tenant(await tenants.ensure_tenant(conn, account), account)
        return cls(settings, database, tenant)

    async def submit(self, sent: bytes) -> float:
        """Submit this body. Returns the seconds that it took."""

        async def blocks() -> AsyncIterator[bytes]:
            for first in range(0, len(sent), BLOCK):
                yield sent[first : first + BLOCK]

        began = monotonic()
        await batches.submit_lines(self._database, self._settings, self._order, blocks())
        return monotonic() - began


async def fill(settings: Settings, items: int) -> int:
    """Submit one batch. Returns its pool."""
    async with Database(settings.database_url) as database:
        await (await Submitter.of(settings, database)).submit(body(items))
    return await pool_at(settings.database_url)


async def pool_at(url: str) -> int:
    """The pool of the model of these batches."""
    async with Database(url, size=1) as database, database.relaxed() as conn:
        return await ensure_pool(conn, MODEL)


def worker_processes(url: str, pool_id: int, rows: int, keys: str = "") -> WorkerProcesses:
    """The worker processes on one pool, `rows` results per flush. `keys`: URL of the key provider."""
    command = [sys.executable, "-m", "benchmarks.queue.drain_worker", url, str(pool_id), str(rows), keys]
    return WorkerProcesses([command] * WORKERS)
