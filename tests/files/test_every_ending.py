"""However a batch of a file ends, its two files together have exactly one correct line for each of its requests, with the answer
to that request.
"""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.api.app import create_app
from app.batches import lifecycle
from app.crypto import secret_key
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import chunk_sweeps, expiry, service
from app.queue.types import Item, Lease, Result
from app.settings import Settings
from app.tenants import service as tenants
from tests.queue import support
from tests.sets import drawn

MODEL = "smollm2-135m-instruct"
PROFILE = drawn(6, 60)
CODES = {"cancelled": "batch_cancelled", "expired": "batch_expired"}
Fate = Literal["answered", "failed", "never", "answered late", "failed late"]
FATES: tuple[Fate, ...] = ("answered", "failed", "never", "answered late", "failed late")
End = Literal["runs out", "cancelled", "expired"]


@dataclass(frozen=True)
class Run:
    """The fate of each item, and how the run ends. A cancel or an expiry comes when some items have a result and others are
    still in an engine. A run that ends by itself leaves no item without a result.
    """

    fates: tuple[Fate, ...]
    end: End

    def has(self, seq: int, *, late: bool) -> bool | None:
        """Whether the item was answered at that time. None: it has no result."""
        fate = self.fates[seq % len(self.fates)]
        if fate == "never" and self.end == "runs out":
            fate = "failed late"
        if fate == "never" or fate.endswith("late") != late:
            return None
        return fate.startswith("answered")


RUNS = st.builds(
    Run, st.lists(st.sampled_from(FATES), min_size=1, max_size=6).map(tuple), st.sampled_from(["runs out", *CODES])
)
NAMES = st.lists(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8),
    min_size=1,
    max_size=6,
    unique=True,
)
MIXED = FATES
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
}
THREE = ["a", '"b"\n', "ç"]


@pytest.fixture
async def client(settings: Settings, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """The API in process. Chunks are small, so that a batch has several."""
    settings = settings.model_copy(update={"chunk_items": 2})
    async with database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(settings), "acme", "test")
    app = create_app(settings)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://api", headers=headers) as client,
    ):
        yield client


@PROFILE
@example(names=THREE, runs=[Run(("answered",), "runs out")])
@example(names=THREE, runs=[Run(("failed",), "runs out"), Run(("failed", "answered"), "runs out")])
@example(names=THREE, runs=[Run(("never",), "cancelled"), Run(("never",), "expired")])
@example(names=THREE, runs=[Run(MIXED, "expired"), Run(("never",), "cancelled"), Run(("answered",), "runs out")])
@example(names=[*THREE, "d", "e"], runs=[Run(MIXED, "cancelled"), Run(MIXED[::-1], "expired")])
@given(names=NAMES, runs=st.lists(RUNS, min_size=1, max_size=3))
async def test_each_request_has_its_one_line_in_one_of_the_two_files(
    client: httpx.AsyncClient, database: Database, names: list[str], runs: list[Run]
) -> None:
    await emptied(database)
    batch_id = await created(client, names)
    answered: set[str] = set()
    for run in runs:
        failed = set()
        for name, ok in await played(client, database, batch_id, run):
            (answered if ok else failed).add(names[name])
        await check(client, batch_id, set(names), answered, failed)
        if answered == set(names):
            return  # nothing is left to retry
        retry = f"/client/v4/accounts/acme/ai/batches/{UUID(batch_id.removeprefix('batch_'))}/retry"
        assert (await client.post(retry)).status_code == 200


async def check(
    client: httpx.AsyncClient, batch_id: str, names: set[str], answered: set[str], failed: set[str]
) -> None:
    """Check a batch that has ended. `failed`: in its last run, which did not repeat answered items."""
    batch = await got(client, f"batches/{batch_id}")
    good, bad = [await lines(client, batch[f"{kind}_file_id"]) for kind in ("output", "error")]
    found = [line["custom_id"] for line in good + bad]
    assert len(found) == len(set(found)) == batch["request_counts"]["total"] == len(names)
    assert {line["custom_id"] for line in good} == answered
    assert {line["custom_id"] for line in bad} == names - answered
    assert all(line["response"]["status_code"] == 200 and line["error"] is None for line in good)
    assert all(line["response"]["body"]["id"] == f"to {line['custom_id']}" for line in good)
    refused = {line["custom_id"] for line in bad if line["response"] is not None}
    assert refused == failed
    assert all(line["error"] is None for line in bad if line["custom_id"] in refused)
    never_run = [line["error"]["code"] for line in bad if line["custom_id"] not in refused]
    assert set(never_run) <= {CODES.get(batch["status"])}, batch["status"]
    counts = batch["request_counts"]
    assert (counts["completed"], counts["failed"]) == (len(answered), len(failed))


async def played(client: httpx.AsyncClient, database: Database, batch_id: str, run: Run) -> list[tuple[int, bool]]:
    """Act as worker and steward until the run ends. Returns for each item with a result whether it is an answer."""
    results: list[tuple[int, bool]] = []
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        leases: list[Lease] = []
        for late in (False, True):
            if late and run.end == "cancelled":
                assert (await client.post(f"/v1/batches/{batch_id}/cancel")).status_code == 200
            elif late and run.end == "expired":
                await conn.execute("update batch set expires_at = now()")
                assert await expiry.expire(conn) == 1
                await chunk_sweeps.sweep(conn)
            await chunk_sweeps.promote(conn)
            while lease := await support.claim(conn, pool, worker):
                leases.append(lease)
            for lease in leases:
                items = await service.load(conn, lease)
                outcomes = [(item, run.has(item.seq, late=late)) for item in items[::-1]]  # the last one ends first
                has = [(item, ok) for item, ok in outcomes if ok is not None]
                assert await service.flush(conn, lease, [result(item, ok) for item, ok in has])
                results += [(item.seq, ok) for item, ok in has]
                # Some leases end early and return the items without a result; the others are kept to the end.
                if late or lease.chunk_id % 2:
                    assert await service.finish(conn, lease)
                    leases = [each for each in leases if each != lease]
    async with database.relaxed() as conn:
        await chunk_sweeps.sweep(conn)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    return results


def result(item: Item, ok: bool) -> Result:
    """Its answer has what was asked."""
    answer = json.dumps(ANSWER | {"id": f"to {json.loads(item.body)['messages'][0]['content']}"}).encode()
    return Result(item.seq, ok, 1, 3, 1, 5, answer if ok else b'{"code":5006,"message":"no"}')


async def created(client: httpx.AsyncClient, names: list[str]) -> str:
    """The id of a new batch with a request of each of these names."""
    line = {"method": "POST", "url": "/v1/chat/completions"}
    bodies = [{"model": MODEL, "messages": [{"role": "user", "content": name}]} for name in names]
    content = "\n".join(json.dumps(line | {"custom_id": n, "body": b}) for n, b in zip(names, bodies, strict=True))
    answer = await client.post("/v1/files", data={"purpose": "batch"}, files={"file": ("x.jsonl", content.encode())})
    assert answer.status_code == 200, answer.text
    request = {"input_file_id": answer.json()["id"], "endpoint": line["url"], "completion_window": "24h"}
    answer = await client.post("/v1/batches", json=request)
    assert answer.json()["errors"] is None, answer.text
    return str(answer.json()["id"])


async def got(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(f"/v1/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def lines(client: httpx.AsyncClient, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    answer = await client.get(f"/v1/files/{file_id}/content")
    assert answer.status_code == 200, answer.text
    assert answer.text  # a batch does not name a file without lines
    return [json.loads(line) for line in answer.content.split(b"\n")[:-1]]


async def emptied(database: Database) -> None:
    """Otherwise the next example would claim the chunks that a failed example has left."""
    async with database.durable() as conn:
        for table in ("event", "chunk", "batch_delta", "batch", "sched"):
            await conn.execute(f"delete from {table}")
