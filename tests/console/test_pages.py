"""Claims about the pages: who sees and does what, on a real database with batches in every state."""

import asyncio
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid4

import httpx
import orjson
import pytest
from psycopg.types.json import Jsonb
from starlette.applications import Starlette

from app import clock
from app.access.roles import Role
from app.admission import quotas
from app.audit import log as audit
from app.budgets import service as budgets
from app.console import stream
from app.db.pool import Database
from app.engines import catalogue
from app.policy import service as policies
from app.queue import service
from app.queue.ingest import NewBatch
from app.queue.types import Result
from app.settings import Settings
from app.tenants import service as tenants
from testing.fakes import tool_calls
from testing.waiting import eventually, in_time
from tests.clock import Clock
from tests.console.conftest import SignIn
from tests.queue import support

EVIL = '<script>alert(1)</script><img src=x onerror="alert(2)" hx-get="/x" hx-trigger="load">\u202eevil'


@dataclass
class World:
    """An account with a batch of which one item has failed, and one that was not begun; another account with one."""

    half: NewBatch
    fresh: NewBatch
    foreign: NewBatch
    tenant: int
    pool: int


@pytest.fixture
async def world(database: Database) -> World:
    async with database.transaction() as conn:
        tenant = await tenants.ensure_tenant(conn, "acme")
        other = await tenants.ensure_tenant(conn, "globex")
        pool = await support.make_pool(conn, "smollm2-135m-instruct")
        await support.make_engine(conn, database, pool)
    half = await support.submit(database, tenant, pool, 32)
    await _run_first(database, half, pool)
    fresh = await support.submit(database, tenant, pool, 16)
    foreign = await support.submit(database, other, pool, 16)
    return World(half, fresh, foreign, tenant, pool)


async def _run_first(database: Database, batch: NewBatch, pool: int) -> None:
    """Run the first chunk of a batch: item 3 fails, and item 4 is answered with something evil."""
    worker = await support.make_worker(database, pool)
    async with database.durable() as conn:
        lease = await support.claim(conn, pool, worker)
        assert lease is not None
        assert lease.batch_id == batch.batch_id
        items = await service.load(conn, lease)
        results = support.answers(items)
        error = orjson.dumps({"code": 5006, "message": f"Bad input: {EVIL}"})
        results[3] = Result(items[3].seq, False, 1, 3, 0, 0, error, error="invalid")
        answer = orjson.dumps({"choices": [{"message": {"content": EVIL}}]})
        results[4] = Result(items[4].seq, True, 1, 3, 1, 5, answer)
        assert await service.flush(conn, lease, results)
        assert await service.finish(conn, lease) is not None
    async with database.transaction() as conn:
        await support.fold(conn)


ASIDE = ("session", "access.refused")


async def entries(database: Database) -> list[tuple[str, str, str, str | None]]:
    """What was done in the console, without sign-ins and what a role may not do, oldest first."""
    async with database.durable() as conn:
        found = await audit.latest(conn)
    return [
        (e.act, e.target, e.outcome, e.reason)
        for e in reversed(found)
        if e.role != "system" and not e.act.startswith(ASIDE)
    ]


# ------------------------------------------------------------ seeing


@pytest.mark.parametrize("role", list(Role))
async def test_every_role_opens_every_page_that_it_may_see(world: World, sign_in: SignIn, role: Role) -> None:
    client = await sign_in(role)
    batch = f"/console/batches/{world.half.request_id}"
    for path in (
        "/console/now",
        "/console/batches",
        "/console/access",
        batch,
        f"{batch}?items=all",
        f"{batch}/items/3",
    ):
        answer = await client.get(path)
        assert answer.status_code == 200, f"{role} {path}: {answer.text[-500:]}"
    expected = 200 if role is Role.ADMIN else 403
    assert (await client.get("/console/batches/new")).status_code == expected


async def test_a_role_of_one_account_sees_nothing_of_another(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    foreign, unknown = f"/console/batches/{world.foreign.request_id}", f"/console/batches/{uuid4()}"
    for path in ("", "/items/0"):
        answers = [await client.get(f"{which}{path}") for which in (foreign, unknown)]
        assert [answer.status_code for answer in answers] == [404, 404]
    for verb in ("pause", "resume", "cancel", "retry", "download", "items/0/reveal"):
        answer = await client.post(f"{foreign}/{verb}", data={"reason": "because"})
        assert answer.status_code == 404, verb
    assert (await client.get(f"/console/stream?page=batch&batch_id={world.foreign.request_id}")).status_code == 404
    assert str(world.foreign.request_id) not in (await client.get("/console/batches?view=all")).text
    assert str(world.foreign.request_id) not in (await client.get("/console/batches?view=all&q=account:globex")).text


async def test_an_operator_sees_every_account(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.OPERATOR)
    page = (await client.get("/console/batches")).text
    assert all(str(batch.request_id) in page for batch in (world.half, world.fresh, world.foreign))
    assert str(world.half.request_id) not in (await client.get("/console/batches?q=account:globex")).text


async def test_the_address_is_the_filter(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)

    async def found(query: str) -> set[UUID]:
        page = (await client.get(f"/console/batches?{query}")).text
        return {batch.request_id for batch in (world.half, world.fresh) if f"row-{batch.request_id}" in page}

    both = {world.half.request_id, world.fresh.request_id}
    assert await found("") == both
    assert await found("view=ended") == set()
    assert await found("view=failures") == {world.half.request_id}
    assert await found(f"q={str(world.fresh.request_id)[:9]}") == {world.fresh.request_id}
    assert await found("q=model:toy") == both
    assert await found("q=model:toy&q=state:paused") == set()
    refused = await client.get("/console/batches?q=colour:red")
    assert refused.status_code == 400
    assert "colour: is no part of a filter" in refused.text


async def test_a_list_is_read_page_by_page_in_both_directions(
    database: Database, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.console import queries

    async with database.transaction() as conn:
        tenant = await tenants.ensure_tenant(conn, "acme")
        pool = await support.make_pool(conn, "toy")
    made = [await support.submit(database, tenant, pool, 1) for _ in range(7)]
    async with database.durable() as conn:
        first, more = await queries.batches(conn, queries.BatchFilter(tenant_id=tenant), 3)
        place = (first[-1].created_at, first[-1].request_id)
        second, _ = await queries.batches(conn, queries.BatchFilter(tenant_id=tenant, after=place), 3)
        back = (second[0].created_at, second[0].request_id)
        again, _ = await queries.batches(conn, queries.BatchFilter(tenant_id=tenant, before=back), 3)
    newest = [batch.request_id for batch in reversed(made)]
    assert more
    assert [row.request_id for row in first] == newest[:3]
    assert [row.request_id for row in second] == newest[3:6]
    assert [row.request_id for row in again] == newest[:3]


async def test_a_batch_says_what_it_waits_for_and_what_has_failed(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    page = (await client.get(f"/console/batches/{world.half.request_id}")).text
    assert "15 answered" in page
    assert "1 failed" in page
    assert "slackwater why" in page
    assert "fair_share" in page
    assert "invalid</code>" in page
    assert "Bad input: " in page


async def test_items_are_listed_by_what_became_of_them(world: World, sign_in: SignIn, database: Database) -> None:
    async with database.durable() as conn:
        await conn.execute("update item_result set ran_ms = 100")
        await conn.execute("update item_result set attempt = 2 where seq = 5")
        await conn.execute("update item_result set yields = 1 where seq = 9")
        await conn.execute("update item_result set ran_ms = 9000 where seq = 6")
    client = await sign_in(Role.VIEWER)

    async def listed(kind: str, start: int = 0) -> list[int]:
        page = (await client.get(f"/console/batches/{world.half.request_id}?items={kind}&from={start}")).text
        return [int(seq) for seq in re.findall(r"/items/(\d+)\"", page)]

    assert await listed("retried") == [5, 9]
    assert await listed("slow") == [6]
    assert await listed("failed") == [3]
    assert len(await listed("answered")) == 15
    assert await listed("retried", 6) == [9]


# ------------------------------------------------------------ bodies


async def test_a_prompt_and_an_answer_are_shown_only_after_a_reveal_with_a_reason(
    world: World, sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    item = f"/console/batches/{world.half.request_id}/items/4"
    assert "evil" not in (await client.get(item)).text
    assert (await client.post(f"{item}/reveal", data={"reason": " "})).status_code == 400
    assert await entries(database) == []
    shown = (await client.post(f"{item}/reveal", data={"reason": "a customer asked"})).text
    assert "evil" in shown
    assert await entries(database) == [("item.reveal", f"{world.half.request_id}/4", "done", "a customer asked")]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.AUDITOR])
async def test_no_other_role_sees_a_body(world: World, sign_in: SignIn, database: Database, role: Role) -> None:
    client = await sign_in(role)
    batch = f"/console/batches/{world.half.request_id}"
    for path in (f"{batch}/items/4/reveal", f"{batch}/download"):
        answer = await client.post(path, data={"reason": "because"})
        assert answer.status_code == 403
        assert "evil" not in answer.text
    assert await entries(database) == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.OPERATOR, Role.AUDITOR])
async def test_no_other_role_sees_a_message_that_may_quote_a_prompt(world: World, sign_in: SignIn, role: Role) -> None:
    client = await sign_in(role)
    for path in ("", "/items/3"):
        page = (await client.get(f"/console/batches/{world.half.request_id}{path}")).text
        assert "evil" not in page
        assert "the request is invalid" in page


async def test_what_a_model_wrote_is_text_and_nothing_else(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    batch = f"/console/batches/{world.half.request_id}"
    revealed = (await client.post(f"{batch}/items/4/reveal", data={"reason": "to look"})).text
    for page in (revealed, (await client.get(batch)).text, (await client.get(f"{batch}/items/3")).text):
        assert "&lt;script&gt;" in page
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "⟨U+202E⟩evil" in page
        assert "\u202e" not in page


async def test_results_are_downloaded_as_a_file_and_the_audit_log_keeps_it(
    world: World, sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    answer = await client.post(f"/console/batches/{world.half.request_id}/download")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert len(answer.text.splitlines()) == 15
    assert await entries(database) == [("batch.download", str(world.half.request_id), "done", None)]


async def test_calls_of_forbidden_tools_are_withheld_from_reveals_and_downloads(
    world: World, sign_in: SignIn, database: Database
) -> None:
    calls = tool_calls.message([("shell", '{"planted": 1}')])
    answer = {"choices": [{"index": 0, "message": calls, "finish_reason": "tool_calls"}], "usage": {}}
    terms = {"id": 1, "rules": ["no-shell"], "tools": [{"deny": {"rule": "no-shell", "tools": ["shell"]}}]}
    async with database.transaction() as conn:
        batch_id = world.half.batch_id
        await conn.execute("update batch set policy = %s where batch_id = %s", [Jsonb(terms), batch_id])
        values = [orjson.dumps(answer), batch_id]
        await conn.execute("update item_result set body = %s where batch_id = %s and ok = 1", values)
    client, batch = await sign_in(Role.ADMIN), f"/console/batches/{world.half.request_id}"
    revealed = (await client.post(f"{batch}/items/4/reveal", data={"reason": "to look"})).text
    downloaded = (await client.post(f"{batch}/download")).text
    for text in (revealed, downloaded):
        assert "Policy rule no-shell does not allow the tool shell" in text
        assert "planted" not in text


# ------------------------------------------------------------ acting


async def test_pause_resume_and_cancel_change_the_batch_and_leave_a_record(
    world: World, sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    path = f"/console/batches/{world.fresh.request_id}"
    for verb, note in (("pause", "Paused"), ("resume", "Resumed"), ("cancel", "Cancelled")):
        answer = await client.post(f"{path}/{verb}", follow_redirects=True)
        assert answer.status_code == 200
        assert f"{note}: " in answer.text
    target = str(world.fresh.request_id)
    assert await entries(database) == [
        (f"batch.{verb}", target, "done", None) for verb in ("pause", "resume", "cancel")
    ]
    assert "Cancelled" in (await client.get(path)).text


async def test_a_retry_begins_a_run_with_what_has_no_answer(world: World, sign_in: SignIn, database: Database) -> None:
    client = await sign_in(Role.ADMIN)
    path = f"/console/batches/{world.half.request_id}"
    refused = await client.post(f"{path}/retry", data={"run": "1"})
    assert refused.status_code == 409
    await client.post(f"{path}/cancel")
    assert "Retry 17 unanswered" in (await client.get(path)).text
    async with database.durable() as conn:  # the tests' items have a model that no catalogue has
        await conn.execute("update batch set model = 'smollm2-135m-instruct'")
    assert (await client.post(f"{path}/retry", data={"run": "1"})).status_code == 303
    outcomes = [(action, outcome == "done") for action, _, outcome, _ in await entries(database)]
    assert outcomes == [
        ("batch.retry", False),
        ("batch.cancel", True),
        ("batch.retry", True),
    ]


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR])
async def test_who_may_not_act_is_offered_nothing_and_refused(
    world: World, sign_in: SignIn, database: Database, role: Role
) -> None:
    client = await sign_in(role)
    path = f"/console/batches/{world.half.request_id}"
    assert 'popovertarget="do-' not in (await client.get(path)).text
    for verb in ("pause", "cancel", "retry"):
        assert (await client.post(f"{path}/{verb}")).status_code == 403
    assert (await client.post("/console/batches/new", data={"file": "x"})).status_code == 403
    assert (await client.post("/console/batches/new/file", content=b"{}")).status_code == 403
    assert await entries(database) == []


async def test_an_address_of_no_action_is_not_found(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    path = f"/console/batches/{world.half.request_id}"
    assert (await client.post(f"{path}/explode")).status_code == 404
    assert (await client.get("/console/nothing")).status_code == 404
    assert (await client.get("/console/batches/not-an-id")).status_code == 404
    assert (await client.get(f"{path}/items/99999999999")).status_code == 404


# ------------------------------------------------------------ a file becomes a batch


def _lines(*bodies: object) -> bytes:
    line = {"method": "POST", "url": "/v1/chat/completions"}
    return b"".join(orjson.dumps({"custom_id": f"c{n}", **line, "body": body}) + b"\n" for n, body in enumerate(bodies))


async def test_a_dropped_file_is_checked_line_by_line_estimated_and_queued(
    world: World, sign_in: SignIn, database: Database
) -> None:
    client = await sign_in(Role.ADMIN)
    good = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    bad = {**good, "max_tokens": -1}
    answer = await client.post("/console/batches/new/file?name=my.jsonl", content=_lines(good, bad, good))
    assert answer.status_code == 201, answer.text
    page = (await client.get(answer.headers["x-next"])).text
    assert "my.jsonl" in page
    assert "2 of 3 lines can run" in page
    assert "max_tokens" in page
    assert "Queue 2 requests" in page
    public_id = answer.headers["x-next"].split("file=")[1]
    form = {"file": public_id, "name": "first try", "window": "6h", "lenient": "on"}
    made = await client.post("/console/batches/new", data=form, follow_redirects=True)
    assert made.status_code == 200, made.text
    assert "<title>first try" in made.text
    assert [action for action, *_ in await entries(database)] == ["batch.create"]


async def test_a_dropped_file_is_held_to_the_quotas_of_its_account_and_to_rules_about_its_budgets(
    world: World, sign_in: SignIn, database: Database, settings: Settings, clock: Clock
) -> None:
    client = await sign_in(Role.ADMIN)
    body = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    stored = await client.post("/console/batches/new/file?name=my.jsonl", content=_lines(body))
    form = {"file": stored.headers["x-next"].split("file=")[1], "window": "6h"}
    models, rule = catalogue.load(settings.models_file), '[[rule]]\nid = "b"\nwhen = { budget = ">=90" }\ndeny = "no"\n'
    async with database.transaction() as conn:
        await quotas.change(conn, "acme", quotas.Quota(open_items=1))
    assert (await client.post("/console/batches/new", data=form)).status_code == 429
    async with database.transaction() as conn:
        await quotas.change(conn, "acme", quotas.NO_QUOTA)
        await policies.apply(conn, rule, models, "test")
        await budgets.put(conn, world.tenant, "b", {"max_tokens": 1000})
    async with database.durable() as conn:
        await conn.execute("update budget set spent = 950")
    clock.advance(2)  # until this process has to know
    made = await client.post("/console/batches/new", data=form)
    assert made.status_code == 303, made.text
    async with database.relaxed() as conn:
        rows = await conn.execute("select endpoint from item_payload order by batch_id desc limit 1")
        assert await rows.fetchall() == [("unfit",)]  # the line fails alone


async def test_a_file_without_a_request_says_what_a_file_has_to_be(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.ADMIN)
    answer = await client.post("/console/batches/new/file?name=a.txt", content=b"hello\n")
    assert answer.status_code == 400
    assert "jsonl" in answer.text


# ------------------------------------------------------------ live


async def test_a_stream_sends_all_parts_first_and_then_only_what_changed(
    world: World, sign_in: SignIn, site: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "EVERY_SECONDS", 0.05)
    site.state.parts.looks._fresh = 0.0
    client = await sign_in(Role.ADMIN)
    cookie = client.cookies["sw"]
    messages = _listen(site, f"page=batch&batch_id={world.fresh.request_id}", cookie)
    first = await anext(messages)
    for region in ("top", "acts", "figures", "run", "why", "items", "events"):
        assert f'hx-target="#batch-{region}"' in first
        assert f'id="batch-{region}"' in first
    await client.post(f"/console/batches/{world.fresh.request_id}/pause")
    async with in_time():
        while "Paused" not in (message := await anext(messages)):
            assert "hx-target" in message or "event:" in message
    assert 'hx-target="#batch-events"' not in message
    await messages.aclose()


async def test_streams_of_the_same_page_look_together_and_anew_in_every_period(
    world: World, sign_in: SignIn, site: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "EVERY_SECONDS", 0.5)
    looks: list[float] = []
    page = site.state.pages["now"]

    async def look(*given: Any) -> Any:
        looks.append(clock.monotonic())
        return await page.look(*given)

    site.state.pages = site.state.pages | {"now": replace(page, look=look)}
    cookie = (await sign_in(Role.ADMIN)).cookies["sw"]
    opened = []
    for _ in range(3):
        opened.append(_listen(site, "page=now", cookie))
        await anext(opened[-1])
        await asyncio.sleep(0.17)
    looks.clear()
    await eventually(lambda: len(looks) >= 5)
    assert min(after - before for before, after in pairwise(looks)) > 0.9 * stream.EVERY_SECONDS / 2
    for messages in opened:
        await messages.aclose()


async def test_a_revoked_session_ends_its_streams(
    world: World, sign_in: SignIn, site: Starlette, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "EVERY_SECONDS", 0.05)
    monkeypatch.setattr(stream, "PING_SECONDS", 0.05)
    client = await sign_in(Role.ADMIN)
    messages = _listen(site, "page=now", client.cookies["sw"])
    await anext(messages)
    await client.post("/console/logout")
    async with in_time():
        heard = [message async for message in messages]
    assert heard[-1].startswith("event: signed-out")


async def test_a_poll_gives_the_same_parts_to_a_browser_that_no_event_reaches(world: World, sign_in: SignIn) -> None:
    client = await sign_in(Role.VIEWER)
    answer = await client.get("/console/look?page=batches&view=all")
    assert answer.status_code == 200
    assert answer.text.count("<hx-partial") == 4, "its two parts, the rail, and the banner"
    assert str(world.half.request_id) in answer.text


async def _listen(site: Starlette, query: str, cookie: str):  # type: ignore[no-untyped-def]
    """The messages of a stream, as they are sent. An ASGI client that reads while the answer is still written."""
    sent: asyncio.Queue[bytes | None] = asyncio.Queue()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/console/stream",
        "raw_path": b"/console/stream",
        "query_string": query.encode(),
        "headers": [
            (b"host", b"127.0.0.1:8701"),
            (b"cookie", f"sw={cookie}".encode()),
            (b"accept", b"text/event-stream"),
            (b"accept-encoding", b"gzip"),  # and yet an event leaves at once, as text
            (b"sec-fetch-site", b"same-origin"),
        ],
        "server": ("127.0.0.1", 8701),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "http_version": "1.1",
        "root_path": "",
    }

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.body":
            await sent.put(bytes(message.get("body") or b""))
            if not message.get("more_body"):
                await sent.put(None)

    task = asyncio.create_task(site(scope, receive, send))  # type: ignore[arg-type]
    try:
        while (part := await sent.get()) is not None:
            if part:
                yield part.decode()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_pool_of_the_pages_cannot_write(site: Starlette, database: Database) -> None:
    import psycopg

    reader: Database = site.state.parts.reader
    for open_one in (reader.relaxed, reader.durable):
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            async with open_one() as conn:
                await conn.execute("delete from batch")
    with pytest.raises(psycopg.errors.QueryCanceled):
        async with reader.relaxed() as conn:
            await conn.execute("select pg_sleep(5)")


async def test_many_readers_of_a_page_are_one_look(world: World, sign_in: SignIn, site: Starlette) -> None:
    clients: list[httpx.AsyncClient] = [await sign_in(Role.VIEWER, subject=f"v{n}") for n in range(3)]
    site.state.parts.looks._fresh = 60.0
    looked = []
    page = site.state.pages["now"]
    original = page.look

    async def counted(*given: object) -> object:
        looked.append(1)
        return await original(*given)

    object.__setattr__(page, "look", counted)
    try:
        answers = await asyncio.gather(*(client.get("/console/now") for client in clients))
    finally:
        object.__setattr__(page, "look", original)
    assert {answer.status_code for answer in answers} == {200}
    assert len(looked) == 1
