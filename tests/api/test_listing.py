"""Every batch of an account is listed, from any route, and is found by both forms of its id."""

import json
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from app import events
from app.api.app import create_app
from app.batches import lifecycle
from app.crypto import secret_key
from app.db.pool import Database
from app.engines.service import ensure_pool
from app.queue import chunk_sweeps, reaping, service
from app.queue.types import Result
from app.settings import Settings
from app.tenants import service as tenants
from app.webhooks import formats
from app.webhooks.formats import Event
from tests.api.support import COMPLETION, SUBMIT, run_all
from tests.queue import support

BATCHES = "/client/v4/accounts/acme/ai/batches"
MODEL = "smollm2-135m-instruct"
ITEM = {"prompt": "hello"}
LINE = {"custom_id": "a", "body": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}}


async def submitted(client: httpx.AsyncClient, items: int = 1, query: str = "", **headers: str) -> str:
    answer = await client.post(SUBMIT + query, json={"requests": [ITEM] * items}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["request_id"])


async def created(client: httpx.AsyncClient, *lines: dict[str, Any], **more: Any) -> dict[str, Any]:
    wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": list(lines)}
    answer = await client.post("/v1/batches", json=wish | more)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def listed(client: httpx.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"{BATCHES}?{query}")
    assert answer.status_code == 200, answer.text
    return [batch["request_id"] for batch in answer.json()["result"]]


def uuid_of(batch: dict[str, Any]) -> str:
    return str(uuid.UUID(batch["id"].removeprefix("batch_")))


async def test_batches_of_both_surfaces_and_refused_ones_are_listed_newest_first(client: httpx.AsyncClient) -> None:
    made = [await submitted(client), uuid_of(await created(client, LINE))]
    refused = await created(client, LINE | {"url": "/v1/nowhere"}, LINE)
    assert refused["status"] == "failed"
    made += [uuid_of(refused), await submitted(client)]
    assert await listed(client) == made[::-1]
    states = [batch["status"] for batch in (await client.get(BATCHES)).json()["result"]]
    assert states == ["queued", "refused", "queued", "queued"]
    ids = [uuid_of(batch) for batch in (await client.get("/v1/batches")).json()["data"]]
    assert ids == made[::-1]


async def test_pages_meet_every_batch_once_while_others_are_made(client: httpx.AsyncClient) -> None:
    made = [await submitted(client), await submitted(client), await submitted(client)]
    made += [uuid_of(await created(client, LINE | {"url": "/v1/nowhere"}, LINE)), await submitted(client)]
    seen, cursor = [], ""
    while cursor is not None:
        answer = (await client.get(f"{BATCHES}?limit=2" + (f"&after={cursor}" if cursor else ""))).json()
        assert answer["result_info"]["per_page"] == 2
        seen += [batch["request_id"] for batch in answer["result"]]
        cursor = answer["result_info"]["cursor"]
        await submitted(client)
    assert seen == made[::-1]


async def test_filters_are_exact_and_work_together(client: httpx.AsyncClient, database: Database) -> None:
    done = await submitted(client, query="&tags=x,y", **{"cf-aig-metadata": '{"team":"search","n":1}'})
    await run_all(database)
    other = await submitted(client, query="&tags=x", **{"cf-aig-metadata": '{"team":"ads"}'})
    paused = await submitted(client)
    await client.post(f"{BATCHES}/{paused}/pause")
    refused = uuid_of(await created(client, LINE | {"url": "/v1/nowhere"}, LINE, metadata={"team": "search"}))
    assert await listed(client, "state=completed") == [done]
    assert await listed(client, "state=queued&state=paused") == [paused, other]
    assert await listed(client, "state=open") == [other]
    assert await listed(client, "state=running") == []
    assert await listed(client, "state=refused") == [refused]
    assert await listed(client, "tag=x") == [other, done]
    assert await listed(client, "tag=x&tag=y") == [done]
    assert await listed(client, "metadata=team:search") == [refused, done]
    assert await listed(client, "metadata=team:search&metadata=n:1&state=completed") == [done]
    assert await listed(client, f"model={MODEL}") == [paused, other, done]
    assert await listed(client, f"model={MODEL}&model=nobody&state=completed&state=cancelled") == [done]
    assert await listed(client, "model=nobody") == []
    moment = (await client.get(f"{BATCHES}/{other}")).json()["result"]["created_at"].replace("+00:00", "Z")
    assert paused in await listed(client, f"created_after={moment}")
    assert done not in await listed(client, f"created_after={moment}")
    assert await listed(client, f"created_before={moment}") == [done]
    assert len(await listed(client, "created_before=2999-01-01")) == 4


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("stat=open", "stat"),
        ("state=done", "state: must be one of queued, running, open"),
        ("metadata=team", "metadata: must be key:value, got team"),
        ("limit=0", "limit: must be between 1 and 100, not '0'"),
        ("limit=101", "limit: must be between 1 and 100, not '101'"),
        ("after=nonsense", "after: 'nonsense' is not in this list"),
        (f"after={uuid.UUID(int=1)}", "after: "),
        ("created_after=yesterday", "created_after"),
        ("tag=%00", "NUL"),
    ],
)
async def test_a_bad_query_is_refused_by_name(client: httpx.AsyncClient, query: str, said: str) -> None:
    answer = await client.get(f"{BATCHES}?{query}")
    assert answer.status_code == 400
    assert said in answer.json()["errors"][0]["message"]


@pytest.fixture
async def stranger(
    settings: Settings, client: httpx.AsyncClient, database: Database
) -> AsyncIterator[httpx.AsyncClient]:
    async with database.transaction() as conn:
        key = await tenants.create_key(conn, secret_key(settings), "other", "test")
    app = create_app(settings)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://api", headers=headers) as other,
    ):
        yield other


async def test_another_accounts_batches_are_neither_listed_nor_found(
    client: httpx.AsyncClient, stranger: httpx.AsyncClient
) -> None:
    mine, refused = await submitted(client), await created(client, LINE | {"url": "/v1/nowhere"}, LINE)
    theirs = BATCHES.replace("acme", "other")
    assert (await stranger.get(theirs)).json()["result"] == []
    assert (await stranger.get("/v1/batches")).json()["data"] == []
    for name in (mine, uuid_of(refused)):
        for path in (f"{theirs}/{name}", f"{theirs}/{name}/results", f"/v1/batches/{name}", f"{theirs}?after={name}"):
            assert (await stranger.get(path)).status_code in (400, 404), path


async def test_an_id_is_known_on_both_surfaces_in_both_spellings(client: httpx.AsyncClient, database: Database) -> None:
    native, file = await submitted(client, 2), await created(client, LINE)
    await run_all(database)
    for name in (native, uuid_of(file)):
        for spelled in (name, f"batch_{uuid.UUID(name).hex}", f"batch_{name}"):
            there = (await client.get(f"/v1/batches/{spelled}")).json()
            here = (await client.get(f"{BATCHES}/{spelled}")).json()["result"]
            assert (there["status"], here["status"]) == ("completed", "completed")
            assert uuid.UUID(there["id"].removeprefix("batch_")) == uuid.UUID(here["request_id"]) == uuid.UUID(name)
            poll = await client.post(f"/client/v4/accounts/acme/ai/run/{MODEL}", json={"request_id": spelled})
            assert poll.json()["result"]["responses"][0]["result"]["response"] == "Paris"
            found = (await client.get(f"/v1/files/{there['output_file_id']}/content")).text.splitlines()
            assert json.loads(found[0])["response"]["body"]["choices"][0]["message"]["content"] == "Paris"
            assert [json.loads(line)["custom_id"] for line in found] == (["0", "1"] if name == native else ["a"])


async def test_a_batch_of_workers_ai_is_cancelled_and_retried_as_openais(
    client: httpx.AsyncClient, database: Database
) -> None:
    native = await submitted(client, 2)
    first = (await client.get(f"/v1/batches/{native}")).json()
    assert (first["input_file_id"], first["completion_window"], first["output_file_id"]) == ("", "background", None)
    assert (await client.post(f"/v1/batches/{native}/cancel")).json()["status"] == "cancelled"
    ended = (await client.get(f"/v1/batches/{native}")).json()
    assert ended["cancelling_at"] is not None
    lines = (await client.get(f"/v1/files/{ended['error_file_id']}/content")).text.splitlines()
    assert [json.loads(line)["error"]["code"] for line in lines] == ["batch_cancelled"] * 2
    assert (await client.post(f"{BATCHES}/{native}/retry")).json()["result"]["status"] == "queued"
    await run_all(database)
    again = (await client.get(f"/v1/batches/{native}")).json()
    assert again["status"] == "completed"
    assert (await client.get(f"/v1/files/{ended['error_file_id']}")).status_code == 404


async def test_every_route_shows_why_a_batch_was_refused(client: httpx.AsyncClient) -> None:
    refused = await created(client, LINE | {"url": "/v1/nowhere"}, LINE)
    for name in (refused["id"], uuid_of(refused)):
        here = (await client.get(f"{BATCHES}/{name}")).json()["result"]
        assert (here["status"], here["errors"]) == ("refused", refused["errors"]["data"])
        assert (await client.get(f"{BATCHES}/{await submitted(client)}")).json()["result"].keys() - {
            "waiting",
            "estimate",
        } <= here.keys()
        results = await client.get(f"{BATCHES}/{name}/results")
        assert (await client.get(f"/v1/batches/{name}")).json()["errors"] == refused["errors"]
        poll = await client.post(f"/client/v4/accounts/acme/ai/run/{MODEL}", json={"request_id": name})
        assert poll.status_code == 400
        assert refused["errors"]["data"][0]["message"] in poll.json()["errors"][0]["message"]
        assert (results.status_code, results.json()["errors"]) == (400, poll.json()["errors"])
        for verb in ("cancel", "pause", "resume", "retry"):
            answer = await client.post(f"{BATCHES}/{name}/{verb}")
            words = f"The batch was refused because of its file, so there is nothing to {verb}; correct the file"
            assert answer.status_code == 409
            assert answer.json()["errors"][0]["message"].startswith(words)


async def test_only_the_lines_that_refuse_a_batch_are_its_errors(client: httpx.AsyncClient) -> None:
    hot = LINE | {"body": LINE["body"] | {"temperature": "hot"}}  # type: ignore[operator]
    refused = await created(client, hot, LINE | {"custom_id": "b", "url": "/v1/nowhere"}, LINE)
    assert [(each["line"], each["code"]) for each in refused["errors"]["data"]] == [
        (2, "invalid_url"),
        (3, "duplicate_custom_id"),
    ]
    assert (await client.get(f"{BATCHES}/{uuid_of(refused)}")).json()["result"]["errors"] == refused["errors"]["data"]


async def test_results_refuse_a_query_parameter_that_they_do_not_know_by_its_name(client: httpx.AsyncClient) -> None:
    name = await submitted(client)
    for query, where in (("foo=1", "foo"), ("faild=1", "faild"), ("after=-1", "after")):
        answer = await client.get(f"{BATCHES}/{name}/results?{query}")
        assert (answer.status_code, answer.json()["success"]) == (400, False)
        assert answer.json()["errors"][0]["message"].startswith(f"{where}: ")


async def test_the_id_in_an_event_of_openais_form_finds_a_batch_of_workers_ai(
    client: httpx.AsyncClient, database: Database
) -> None:
    name = await submitted(client, 1)
    await run_all(database)
    async with database.relaxed() as conn:
        row = await (await conn.execute("select data from event where kind = 'batch.succeeded'")).fetchone()
    assert row
    event = Event(
        uuid.uuid4(), "batch.succeeded", MODEL, events.from_json("batch.succeeded", row[0]), datetime.now(UTC)
    )
    told = json.loads(formats.openai(event, uuid.uuid4()))
    found = (await client.get(f"/v1/batches/{told['data']['id']}")).json()
    assert (found["id"], found["status"], found["request_counts"]["completed"]) == (told["data"]["id"], "completed", 1)
    assert uuid.UUID(found["id"].removeprefix("batch_")) == uuid.UUID(name)


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def lines(client: httpx.AsyncClient, name: str, query: str = "") -> tuple[list[dict[str, Any]], str]:
    answer = await client.get(f"{BATCHES}/{name}/results?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()], answer.headers["x-slackwater-complete"]


async def answered(database: Database, *seqs: int, bad: int | None = None) -> None:
    """An engine answers these items of the only batch, which does not become final."""
    async with database.durable() as conn:
        pool = await ensure_pool(conn, MODEL)
        worker = await support.make_worker(database, pool)
        lease = await support.claim(conn, pool, worker)
        assert lease
        good, no = json.dumps(COMPLETION).encode(), b'{"code":5006,"message":"no"}'
        assert await service.flush(
            conn, lease, [Result(n, n != bad, 1, 3, 1, 5, no if n == bad else good) for n in seqs]
        )


async def test_results_are_read_while_it_runs_in_an_order_that_stays(
    client: httpx.AsyncClient, database: Database
) -> None:
    name = await submitted(client, 6)
    assert await lines(client, name) == ([], "false")
    await answered(database, 0, 1, 2, 4, bad=1)
    early, complete = await lines(client, name)
    assert ([line["id"] for line in early], complete) == ([0, 1, 2], "false")
    assert [line["id"] for line in (await lines(client, name, "after=2"))[0]] == [2]
    assert [line["id"] for line in (await lines(client, name, "failed=1"))[0]] == [1]
    await client.post(f"{BATCHES}/{name}/cancel")
    async with database.durable() as conn:
        await conn.execute("update worker set lease_until = now() - interval '1 hour'")
        await reaping.reap(conn)
        await chunk_sweeps.sweep(conn)
    async with database.transaction() as conn:
        await lifecycle.settle(conn)
    whole, complete = await lines(client, name)
    assert (whole[:3], complete) == (early, "true")
    poll = await client.post(f"/client/v4/accounts/acme/ai/run/{MODEL}", json={"request_id": name})
    assert whole == poll.json()["result"]["responses"]
    assert (await lines(client, name, "after=4"))[0] == whole[4:]
    failed = [line for line in whole if not line["success"]]
    assert [line["id"] for line in failed] == [1, 3, 5]
    assert (await lines(client, name, "failed=1"))[0] == failed
    assert (await lines(client, name, "failed=true&after=1"))[0] == failed[1:]
    assert (await lines(client, name, "after=99"))[0] == []


async def test_failures_are_grouped_by_their_message(client: httpx.AsyncClient, database: Database) -> None:
    name = await submitted(client, 5)
    await run_all(database, fail={0, 2, 3})
    found = (await client.get(f"{BATCHES}/{name}")).json()["result"]
    assert found["failures"] == [{"code": 5006, "message": "no", "count": 3}]


async def test_a_batch_of_which_every_item_is_its_callers_mistake_polls_200_with_each_error(
    client: httpx.AsyncClient, database: Database
) -> None:
    name = await submitted(client, 2)
    await run_all(database, fail={0, 1})
    poll = await client.post(f"/client/v4/accounts/acme/ai/run/{MODEL}", json={"request_id": name})
    assert (poll.status_code, poll.json()["success"]) == (200, True)
    said = [(each["success"], each["error"]["code"]) for each in poll.json()["result"]["responses"]]
    assert said == [(False, 5006)] * 2
    async with database.relaxed() as conn:
        row = await (await conn.execute("select data from event where kind = 'batch.failed'")).fetchone()
    assert row
    event = json.loads(row[0])
    assert (event["internal_code"], event["http_code"]) == (5006, 400)


async def test_one_item_that_the_engine_broke_at_makes_it_the_engines_failure(
    client: httpx.AsyncClient, database: Database
) -> None:
    name = await submitted(client, 2)
    await run_all(database, fail={0, 1})
    async with database.durable() as conn:
        await conn.execute(
            'update item_result set body = convert_to(\'{"code":5001,"message":"\\u0000"}\', \'UTF8\') where seq = 1'
        )
    poll = await client.post(f"/client/v4/accounts/acme/ai/run/{MODEL}", json={"request_id": name})
    assert (poll.status_code, poll.json()["success"]) == (500, False)
