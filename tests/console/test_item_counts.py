"""Claims about where items are: at one moment the command line, the API, the console and the metrics say the same."""

import html
import re
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any
from uuid import UUID

import httpx
import pytest

from app.access.roles import Role
from app.console import queries
from app.db.pool import Connection, Database
from app.queue import item_counts, overview, reads, reaping, service
from app.settings import Settings
from app.tenants import service as tenants
from tests.api.support import RUN
from tests.cli.conftest import api, key, run
from tests.cli.support import Run
from tests.console.conftest import SignIn
from tests.queue import support

__all__ = ["api", "key", "run"]
ITEMS, ANSWERED, FAILED, INSIDE = 64, 5, 2, 6  # of those that are answered, some with an error
ACCOUNT = "/client/v4/accounts/acme/ai"
QUEUE = f"{RUN}?queueRequest=true"
PLACES = ("queued", "claimed", "in_engine", "done")


@dataclass
class Scene:
    """A batch of 64 items in four chunks, and what a test does with it."""

    conn: Connection
    database: Database
    tenant: int
    pool: int
    batch_id: int = 0
    request_id: UUID = field(default_factory=lambda: UUID(int=0))
    worker: int = 0

    async def submitted(self) -> None:
        batch = await support.submit(self.database, self.tenant, self.pool, ITEMS)
        self.batch_id, self.request_id = batch.batch_id, batch.request_id

    async def running(self) -> None:
        """One chunk is leased: five of its items have a result, two of them an error, and six are in the engine."""
        self.worker = await support.make_engine(self.conn, self.database, self.pool)
        await self.submitted()
        lease = await support.claim(self.conn, self.pool, self.worker)
        assert lease is not None
        items = await service.load(self.conn, lease)
        results = support.answers(items[:ANSWERED])
        for n in range(FAILED):
            results[n] = results[n]._replace(ok=False, body=b'{"code": 500, "message": "no"}')
        assert await service.flush(self.conn, lease, results)
        [(engine,)] = await (await self.conn.execute("select engine_id from engine")).fetchall()
        inside = ((self.batch_id, INSIDE), (self.batch_id + 1, 3))  # of another batch, too
        told: dict[str, Any] = {"reason": "open", "allowance": 8, "batch_in_flight": 11, "in_engine": inside}
        assert await support.report_engine(self.conn, engine, self.worker, ready=True, **told)

    async def paused(self) -> None:
        """What a worker has goes on."""
        await self.running()
        await self.conn.execute("update batch set state = 'paused'")
        await self.conn.execute("update chunk set state = 'held' where state = 'ready'")

    async def killed(self) -> None:
        """Its worker is lost. What was answered stays answered."""
        await self.running()
        await self.conn.execute("update worker set lease_until = now() - interval '1 minute'")
        await reaping.reap(self.conn)

    async def over_budget(self, client: httpx.AsyncClient) -> None:
        """It was accepted, and there is no money left."""
        put = await client.put(f"{ACCOUNT}/budgets/b", json={"max_tokens": 1000})
        assert put.status_code == 200
        await self.conn.execute("update budget set spent = 990")
        made = await client.post(QUEUE, json={"requests": [{"prompt": "hello", "max_tokens": 100}] * ITEMS})
        self.request_id = UUID(made.json()["result"]["request_id"])


@pytest.fixture
async def scene(database: Database) -> Any:
    async with database.durable() as conn:
        tenant = await tenants.ensure_tenant(conn, "acme")
        yield Scene(conn, database, tenant, await support.make_pool(conn, "toy"))


def listed(page: str, request_id: UUID) -> str:
    """The row of a batch in the list of the console, without markup."""
    row = re.search(rf'<tr role="row" id="row-{request_id}">.*?</tr>', page, re.DOTALL)
    assert row is not None
    return bare(row[0])


def bare(markup: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", markup)).split())


CASES = {
    "submitted": (ITEMS, 0, 0, 0),
    "running": (48, 5, INSIDE, ANSWERED),
    "paused": (48, 5, INSIDE, ANSWERED),
    "killed": (ITEMS - ANSWERED, 0, 0, ANSWERED),
    "over_budget": (ITEMS, 0, 0, 0),
}


@pytest.mark.parametrize("case", CASES)
async def test_every_surface_counts_the_items_of_a_batch_alike(
    case: str, scene: Scene, api: Settings, key: str, run: Run, sign_in: SignIn
) -> None:
    expected = dict(zip(PLACES, CASES[case], strict=True))
    words = item_counts.words(*CASES[case][:3])
    of_them = f", {FAILED} of them failed" if expected["done"] else ""
    url, headers = f"http://127.0.0.1:{api.port}", {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as client:
        await (scene.over_budget(client) if case == "over_budget" else getattr(scene, case)())
        own = f"{ACCOUNT}/batches"
        one = (await client.get(f"{own}/{scene.request_id}")).json()["result"]
        [row] = (await client.get(own)).json()["result"]
        because = (await client.get(f"{own}/{scene.request_id}/why")).json()["result"]
        openai = (await client.get(f"/v1/batches/batch_{scene.request_id.hex}")).json()
        status = (await client.get("/status")).json()["queue"]
        metrics = (await client.get("/metrics")).text
    prompt, cached, output = (each * expected["done"] for each in (3, 1, 5))  # of stored results: see `support.answers`
    for usage in (one["usage"], row["usage"]):
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, output)
        assert usage["prompt_tokens_details"] == {"cached_tokens": cached}
    assert (openai["usage"]["input_tokens"], openai["usage"]["output_tokens"]) == (prompt, output)
    for progress in (one["progress"], row["progress"], because["progress"]):
        done = progress["succeeded"] + progress["failed"]
        assert progress["failed"] == (FAILED if done else 0)
        assert {place: progress.get(place, done) for place in PLACES} == expected
    assert {place: status[f"items_{place}"] for place in PLACES} == expected
    for place, count in expected.items():
        assert f'slackwater_items{{state="{place}"}} {float(count)}' in metrics
    # the command line
    shown = bare(run("batch", "show", str(scene.request_id)).output)
    told = f"{expected['done']} of {ITEMS} done{of_them}; {words}"
    assert f"items {told}" in shown
    assert f"\t{expected['done']}/{ITEMS}\t{FAILED if of_them else 0}\t" in run("batch", "list").output
    assert f"{expected['done']} of {ITEMS} items done{of_them}" in run("why", str(scene.request_id)).output
    assert not prompt or f"{prompt} in ({cached} cached), {output} out" in shown
    assert f"items: {words}" in bare(run("status").output)
    assert f"items: {words}" in bare(run("top", "--once").output)
    if case == "running":
        assert f"The batch runs: {words}." in bare(run("why", str(scene.request_id)).output)
    # the console
    reader = await sign_in(Role.ADMIN)
    page = bare((await reader.get(f"/console/batches/{scene.request_id}")).text)
    answered = expected["done"] - FAILED if of_them else 0
    assert f"{answered} answered, {f'{FAILED} failed, ' if of_them else ''}{words}" in page.replace(" ,", ",")
    assert not prompt or f"{cached} of {prompt}" in page
    row_of_list = listed((await reader.get("/console/batches")).text, scene.request_id)
    assert f"{expected['done']} of {ITEMS}" in row_of_list
    assert words in row_of_list or case != "running"
    # list and page of the console say the same of what it waits for
    state = because["waiting"]["message"] if because["waiting"] else words
    assert state.casefold() in page.casefold()
    assert state.casefold() in row_of_list.casefold()


async def test_items_of_a_silent_worker_are_said_to_come_back_when_its_lease_ends(
    scene: Scene, api: Settings, key: str, run: Run, sign_in: SignIn
) -> None:
    await scene.running()
    await scene.conn.execute(
        "update worker set renewed_at = now() - interval '20 min', lease_until = now() + interval '10 min'"
    )
    [(at,)] = await (await scene.conn.execute("select lease_until from worker")).fetchall()
    words = item_counts.words(*CASES["running"][:3], returns_at=at)
    back = f"{at.astimezone(UTC):%H:%M:%S} UTC"
    assert f"{INSIDE} in the engine (its worker is silent; they go back to the queue at {back}), " in words
    batch = str(scene.request_id)
    assert words in bare(run("batch", "show", batch).output)
    assert f"The batch runs: {words}." in bare(run("why", batch).output)
    assert words in bare((await (await sign_in(Role.ADMIN)).get(f"/console/batches/{batch}")).text)
    await support.beat(scene.conn, scene.worker)
    assert "silent" not in bare(run("batch", "show", batch).output)


async def test_what_a_finished_chunk_counted_is_counted_before_and_after_it_is_folded(scene: Scene) -> None:
    await scene.running()
    await scene.conn.execute(
        "with gone as (delete from chunk where state = 'leased' returning *) insert into batch_delta"
        " (batch_id, ok, failed, prompt_tokens, cached_tokens, completion_tokens) select batch_id, 16, 0, 160, 16, 32 from gone"
    )
    before, used_before = (await overview.overview(scene.conn)).items, await used(scene)
    await support.fold(scene.conn)
    after, used_after = (await overview.overview(scene.conn)).items, await used(scene)
    assert before == after == item_counts.ItemCounts(ITEMS, 16, 0)
    assert used_before == used_after == [(160, 16, 32)] * 2


async def used(scene: Scene) -> list[tuple[int, int, int]]:
    """The tokens of the batch, as the API and the console count them."""
    status = await reads.status(scene.database, scene.tenant, scene.request_id)
    row = await queries.batch(scene.conn, scene.tenant, scene.request_id)
    return [(each.prompt_tokens, each.cached_tokens, each.completion_tokens) for each in (status, row) if each]
