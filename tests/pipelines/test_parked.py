"""Items that wait for an answer from outside: one result each, whoever is first, and without a lease."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from app.admission.control import AdmissionControl
from app.db.pool import Database
from app.pipelines import parked
from app.queue import ingest, settling
from app.queue.bodies import StoredBodies, new_seal
from app.sealing.keyring import Keyring
from app.settings import Settings
from app.tenants import service as tenants
from tests.pipelines.outside import feed, make, rows
from tests.webhooks import support as hooks
from workers.steward.feeder import PipelineKeeper

RESULTS = "select seq, ok, body from item_result where batch_id = %s order by seq"


@pytest.fixture
async def tenant(database: Database, key: str) -> int:
    async with database.relaxed() as conn:
        return await tenants.find_tenant(conn, "acme")


async def _settle(database: Database) -> None:
    async with database.transaction() as conn:
        await settling.settle(conn)


async def _due_now(database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("update parked set due = now()")


async def _time_out(database: Database) -> int:
    async with database.transaction() as conn:
        return await parked.time_out(conn)


async def _state_of(database: Database, batch_id: int) -> str:
    return str((await rows(database, "select state from batch where batch_id = %s", batch_id))[0][0])


async def test_what_waits_is_fetched_page_by_page_with_what_it_asks(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant)
    found, path = [], f"/v1/pipelines/{waits.public_id}/waiting?limit=2"
    first = (await client.get(path)).json()
    last = (await client.get(f"{path}&after={first['last_id']}")).json()
    found = [*first["data"], *last["data"]]
    assert [each["id"] for each in found] == ["run/0", "run/1", "run/2"]
    assert [(each["custom_id"], each["body"]) for each in found][1] == ("line-1", {"code": "print(1)"})
    assert (first["has_more"], last["has_more"]) == (True, False)
    assert (await client.get(f"/v1/pipelines/{waits.public_id}/waiting?stage=after")).json()["data"] == []
    assert (await client.get(f"/v1/pipelines/{waits.public_id}/waiting?stage=odd")).status_code == 404


async def test_answers_are_results_that_are_handed_on_and_the_last_ends_the_stage(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant, items=2)
    answered = await client.post(waits.path(1), json={"answer": {"exit": 0}})
    assert (answered.status_code, answered.json()["state"]) == (200, "answered")
    await _settle(database)
    assert await _state_of(database, waits.batch_id) == "open"
    await client.post(waits.path(0), json={"answer": "done"})
    await _settle(database)
    assert await rows(database, RESULTS, waits.batch_id) == [(0, 1, b'"done"'), (1, 1, b'{"exit":0}')]
    counts = "select state, ok, failed, total from batch where batch_id = %s"
    assert await rows(database, counts, waits.batch_id) == [("completed", 2, 0, 2)]
    await feed(database, settings)
    asked = await rows(database, "select body from item_payload where batch_id = %s order by seq", waits.after_id)
    said = [orjson.loads(body)["messages"][0]["content"] for (body,) in asked]
    assert said == ["It said done", 'It said {"exit":0}']
    assert await rows(database, "select count(*) from handoff") == [(0,)]


async def test_the_same_answer_again_is_accepted_and_another_is_not(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant)
    first = {"answer": {"exit": 0, "output": "42"}}
    same = {"answer": {"output": "42", "exit": 0}}
    codes = [(await client.post(waits.path(0), json=each)).status_code for each in (first, same, {"answer": 1}, first)]
    assert codes == [200, 200, 409, 200]
    assert len(await rows(database, RESULTS, waits.batch_id)) == 1
    assert await rows(database, "select seqs from handoff") == [([0],)]


async def test_of_answers_at_once_one_wins(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant)
    sent = await asyncio.gather(*(client.post(waits.path(0), json={"answer": n}) for n in range(6)))
    codes = sorted(each.status_code for each in sent)
    assert codes == [200, 409, 409, 409, 409, 409]
    winner = next(n for n, each in enumerate(sent) if each.status_code == 200)
    assert await rows(database, RESULTS, waits.batch_id) == [(0, 1, str(winner).encode())]
    assert await rows(database, "select seqs from handoff") == [([0],)]


async def test_the_first_of_answer_and_timeout_wins(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant, items=8)
    await _due_now(database)
    first = await client.post(waits.path(0), json={"answer": 0})
    rest, _ = await asyncio.gather(
        asyncio.gather(*(client.post(waits.path(n), json={"answer": n}) for n in range(1, 8))), _time_out(database)
    )
    sent = [first, *rest]
    await _time_out(database)
    found = await rows(database, RESULTS, waits.batch_id)
    assert len(found) == 8
    for n, (_, ok, body) in enumerate(found):
        assert (sent[n].status_code == 200) == bool(ok)
        assert orjson.loads(body) == n if ok else b"external.timeout of stage 'run': nobody" in body
    marked = await rows(database, "select unnest(seqs) from handoff order by 1")
    assert [seq for (seq,) in marked] == list(range(8))
    states = await rows(database, "select state from parked order by seq")
    assert states == [("answered" if ok else "timed_out",) for _, ok, _ in found]


async def test_nobody_answered_in_time_is_an_error_that_later_answers_do_not_change(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant, items=1)
    await _due_now(database)
    assert await _time_out(database) == 1
    await _settle(database)
    assert await _state_of(database, waits.batch_id) == "failed"
    late = await client.post(waits.path(0), json={"answer": 1})
    assert (late.status_code, "has timed out" in late.text) == (409, True)
    errors = await rows(database, "select error, n from batch_error where batch_id = %s", waits.batch_id)
    assert errors == [("timeout", 1)]


async def test_a_cancelled_pipeline_asks_nobody_and_a_retry_asks_again_what_has_no_answer(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant)
    await client.post(waits.path(0), json={"answer": 1})
    await feed(database, settings)
    assert (await client.post(f"/v1/pipelines/{waits.public_id}/cancel")).status_code == 200
    await _settle(database)
    await PipelineKeeper(database, settings, AdmissionControl.of(database, settings)).run()
    assert await _state_of(database, waits.batch_id) == "cancelled"
    assert (await client.post(waits.path(1), json={"answer": 1})).status_code == 409
    assert await rows(database, RESULTS, waits.batch_id) == [(0, 1, b"1")]
    retried = await client.post(f"/v1/pipelines/{waits.public_id}/retry")
    assert retried.status_code == 200, retried.text
    waiting = (await client.get(f"/v1/pipelines/{waits.public_id}/waiting")).json()["data"]
    assert [each["id"] for each in waiting] == ["run/1", "run/2"]
    assert (await client.post(waits.path(1), json={"answer": 2})).status_code == 200
    assert (await client.post(waits.path(0), json={"answer": 1})).status_code == 200
    marked = await rows(database, "select run, seqs from handoff where batch_id = %s", waits.batch_id)
    assert marked == [(2, [1])]


async def test_a_retry_asks_again_where_nobody_answered_in_time(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant, items=1)
    await _due_now(database)
    await _time_out(database)
    await feed(database, settings)
    await PipelineKeeper(database, settings, AdmissionControl.of(database, settings)).run()
    assert (await client.post(f"/v1/pipelines/{waits.public_id}/retry")).status_code == 200
    assert (await client.post(waits.path(0), json={"answer": 1})).status_code == 200
    await _settle(database)
    counts = "select ok, failed, total from batch where batch_id = %s"
    assert await rows(database, counts, waits.batch_id) == [(1, 0, 1)]


async def test_each_item_writes_one_event_that_says_where_to_answer(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    async with database.transaction() as conn:
        terms = {"tenant_id": tenant, "kinds": ["item.waiting"], "shape": "standard"}
        await hooks.subscribe(conn, settings, "http://127.0.0.1:9/hook", **terms)
    waits = await make(database, settings, tenant, items=2)
    query = "select kind, n, convert_from(data, 'UTF8')::json from event join delivery using (event_id) order by n"
    found = await rows(database, query)
    assert [(kind, n) for kind, n, _ in found] == [("item.waiting", 0), ("item.waiting", 1)]
    data = found[1][2]
    assert (data["pipeline"], data["stage"], data["item"]) == (waits.public_id, "run", 1)
    assert (data["reference"], "code" in str(data)) == ("line-1", False)


async def test_of_a_sealed_stage_bodies_are_opened_and_answers_sealed(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    ring = Keyring.of(settings)
    async with database.relaxed() as conn:
        numbers = tuple([await ingest.next_batch_id(conn) for _ in range(3)])
    seal = await new_seal(database, ring, tenant, numbers[1])
    waits = await make(database, settings, tenant, keys={1: seal[1]}, numbers=numbers)
    waiting = (await client.get(f"/v1/pipelines/{waits.public_id}/waiting")).json()["data"]
    assert waiting[2]["body"] == {"code": "print(2)"}
    codes = [
        (await client.post(waits.path(2), json={"answer": each})).status_code for each in ("secret", "secret", "x")
    ]
    assert codes == [200, 200, 409]
    ((_, _, body),) = await rows(database, RESULTS, waits.batch_id)
    assert b"secret" not in body
    assert await StoredBodies(database, ring, waits.batch_id).result(2, 1, body) == b'"secret"'


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"result": 1}, 400, "answer: is missing"),
        ({"answer": "x" * 65_536}, 400, "the most is 64 KiB"),
        ({"answer": "x" * 140_000}, 413, "too large"),
    ],
)
async def test_an_answer_that_cannot_be_stored_is_refused(
    settings: Settings,
    client: httpx.AsyncClient,
    database: Database,
    tenant: int,
    body: dict[str, Any],
    status: int,
    message: str,
) -> None:
    waits = await make(database, settings, tenant, items=1)
    refused = await client.post(waits.path(0), json=body)
    assert (refused.status_code, message in refused.text) == (status, True), refused.text
    assert await rows(database, RESULTS, waits.batch_id) == []


async def test_what_is_not_there_and_what_belongs_to_others_is_not_found(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    async with database.transaction() as conn:
        other = await hooks.make_tenant(conn, 77)
    theirs, mine = await make(database, settings, other), await make(database, settings, tenant, items=1)
    paths = [theirs.path(0), mine.path(1), mine.path(0, "after"), mine.path(0, "odd"), mine.path(2**31)]
    assert {(await client.post(path, json={"answer": 1})).status_code for path in paths} == {404}
    assert (await client.get(f"/v1/pipelines/{theirs.public_id}/waiting")).status_code == 404


async def test_the_gauge_counts_what_waits(
    settings: Settings, client: httpx.AsyncClient, database: Database, tenant: int
) -> None:
    waits = await make(database, settings, tenant)
    await client.post(waits.path(0), json={"answer": 1})
    async with database.relaxed() as conn:
        assert await parked.gauges(conn) == [("parked_items", "", 2)]
